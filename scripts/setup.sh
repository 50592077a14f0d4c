#!/usr/bin/env bash
# Installs what is missing: Debian packages (as root or through sudo) and the Python packages of .venv. Without the right
# to install, it names the packages to ask an administrator for, and stops. Quick when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build ccache libgloo-dev libuv1-dev libboost-dev libssl-dev libyaml-cpp-dev libhwloc-dev
  libspdlog-dev nlohmann-json3-dev)
test_packages=(catch2 openssh-server openssh-client iproute2 procps openmpi-bin mpich
  slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins zsh fish valgrind)

# A package is installed if dpkg says so; a compiler or cmake from another source will do.
missing_packages() {
  local package
  for package in "$@"; do
    case "$package" in
      g++ | cmake | ccache) command -v "$package" >/dev/null && continue ;;
      ninja-build) command -v ninja >/dev/null && continue ;;
    esac
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || echo "$package"
  done
}

python=${PYTHON:-python3}
wanted=("${build_packages[@]}")
[ "${1:-demo}" != test ] || wanted+=("${test_packages[@]}")
[ "${1:-demo}" != spark ] || wanted+=(openjdk-17-jre-headless)
mapfile -t missing < <(missing_packages "${wanted[@]}")
command -v "$python" >/dev/null || missing+=(python3 python3-venv python3-dev)
if command -v "$python" >/dev/null; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
    missing+=(python3-dev)
fi

if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    sudo=()
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
    sudo=(sudo)
  else
    echo "These packages are missing, and this user may not install packages:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    echo "Ask an administrator to run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "installing: ${missing[*]}"
  scripts/progress.sh "Package lists" "${sudo[@]}" apt-get update
  scripts/progress.sh "Debian packages" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}"
fi

# What only tests use: the demo does without it.
requirements=(scripts/requirements-dev.txt)
[ "${1:-demo}" != test ] || requirements+=(scripts/requirements-test.txt)
[ -x .venv/bin/python ] || "$python" -m venv .venv
for file in "${requirements[@]}"; do
  stamp=.venv/.$(basename "$file")
  cmp -s "$file" "$stamp" && continue
  scripts/progress.sh "Python packages of $(basename "$file")" \
    .venv/bin/pip install --progress-bar off --disable-pip-version-check -r "$file"
  cp "$file" "$stamp"
done
