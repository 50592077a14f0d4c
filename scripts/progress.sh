#!/usr/bin/env bash
# progress.sh TITLE COMMAND...: runs the command and says how far it is: in one line that moves on a terminal, elsewhere in a
# line every half minute. What the command prints goes to build/<title>.log; its end is shown when it fails.
set -uo pipefail
title=$1
shift
mkdir -p build
log=build/$(tr -c 'a-z0-9\n' '-' <<<"${title,,}").log
start=$SECONDS
said=$SECONDS
moves=
[ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && moves=1

# The step that a line of apt-get, pip or ninja stands for; nothing for other lines.
installed=0
packages=
step=
read_step() {
  set -- "${1#"${1%%[![:space:]]*}"}"  # without the blanks before it
  case $1 in
    '['*/*']'*) step="compiled ${1%%]*}" && step=${step/\[/} && step=${step/\// of } ;;
    *' newly installed'*) packages=$(grep -oE '[0-9]+ newly installed' <<<"$1" | cut -d' ' -f1) ;;
    Get:*) step="downloading$(cut -d' ' -f5 <<<"$1" | sed 's/^/ /')" ;;
    'Setting up '*) installed=$((installed + 1)) step="package $installed of ${packages:-?}: $(cut -d' ' -f3 <<<"$1")" ;;
    'Collecting '*) step="looking for ${1#Collecting }" ;;
    'Downloading '*) step="downloading $(basename "$(sed 's/.*Downloading //; s/ (.*//' <<<"$1")")" ;;
    'Installing collected packages'*) step="installing Python packages" ;;
    *) return 1 ;;
  esac
}

show() {
  local text="$title: ${step:-starting} ($((SECONDS - start)) s)"
  local columns=${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}
  printf '\r\033[K%s' "${text:0:columns-1}"
}

[ -n "$moves" ] || echo "$title ..."
: >"$log"
while :; do
  IFS= read -r -t 1 line
  code=$?
  if [ $code -eq 0 ]; then
    printf '%s\n' "$line" >>"$log"
    read_step "$line" || continue
  elif [ $code -gt 128 ]; then  # a second has passed without the end of a line
    printf '%s' "$line" >>"$log"
  else
    break
  fi
  if [ -n "$moves" ]; then
    show
  elif [ $((SECONDS - said)) -ge 30 ]; then
    said=$SECONDS
    echo "$title: ${step:-starting} ($((SECONDS - start)) s)"
  fi
done < <("$@" 2>&1; echo $? >"$log.code")
code=$(cat "$log.code" 2>/dev/null || echo 1)
rm -f "$log.code"
[ -z "$moves" ] || printf '\r\033[K'
if [ "$code" -ne 0 ]; then
  tail -n 40 "$log" >&2
  echo "$title: failed after $((SECONDS - start)) s; the whole log is $log" >&2
  exit "$code"
fi
echo "$title: done in $((SECONDS - start)) s"
