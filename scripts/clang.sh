#!/usr/bin/env bash
# Installs the Debian packages named as arguments that are missing (clang-14, clang-tidy-14, libclang-rt-14-dev), as root or
# through sudo. Without the right to install, it names the packages to ask an administrator for, and stops.
set -euo pipefail
missing=()
for package in "$@"; do
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" = 0 ]; then
  sudo=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  sudo=(sudo)
else
  echo "Ask an administrator to run: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
