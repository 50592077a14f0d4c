#!/usr/bin/env bash
# Compiles everything for arm64 and runs the C++ tests and torch's tests of ranks on this machine, whose processor is another
# one: by qemu, in a Debian for arm64 that lies in build/arm64-root (or HVD_ARM64_ROOT) and is made when it is missing, which
# takes ten minutes. Needs root: it mounts, changes root and teaches the kernel to start such programs. On a machine with
# arm64, `make test` is it. `arm64.sh COMMAND...` runs the command there, as `make wheel-arm64` does.
# Mounts lie in a namespace of their own, which ends with this script however it ends: nobody else sees them, and
# `rm -rf build` follows none.
set -euo pipefail
cd "$(dirname "$0")/.."
export HVD_ARM64_ROOT=${HVD_ARM64_ROOT:-$PWD/build/arm64-root}
host_packages=(qemu-user-static g++-aarch64-linux-gnu debootstrap debian-archive-keyring)
packages=(libgloo-dev libuv1-dev libboost-dev libssl-dev libyaml-cpp-dev libhwloc-dev libspdlog-dev nlohmann-json3-dev
  catch2 libstdc++-12-dev procps gcc python3-dev)

if [ "$(uname -m)" = aarch64 ]; then
  echo "This machine has the processor: \`make test\` runs everything." >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "The tests for arm64 need root: they mount, change root and register qemu with the kernel." >&2
  exit 1
fi
if [ "${1:-}" != --inside ]; then
  scripts/clang.sh "${host_packages[@]}"
  unshare --mount --propagation private true || { echo "This root may not mount: run it outside the container." >&2; exit 1; }
  exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift

# Programs for arm64 are started by qemu, which the kernel holds open (F): so they find it with another root, too.
binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc none $binfmt
if ! grep -qs '^magic 7f454c460201010000000000000000000200b7' $binfmt/*; then
  grep -v '^#' /usr/lib/binfmt.d/qemu-aarch64.conf | tr -d '\r\n' >$binfmt/register
fi

# Mounts what programs expect: this tree at its own path, and what the kernel shows.
mount_in() {
  local root=$1 folder
  for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
  mkdir -p "$root$PWD"
  mount --bind "$PWD" "$root$PWD"
}

if [ ! -d "$HVD_ARM64_ROOT" ]; then
  new=$HVD_ARM64_ROOT.new
  rm -rf "$new"
  mkdir -p "$new"
  scripts/progress.sh "A Debian for arm64" debootstrap --arch=arm64 --variant=minbase bookworm "$new"
  mv "$new" "$HVD_ARM64_ROOT"
fi
if [ "$(cat "$HVD_ARM64_ROOT/etc/hvd-packages" 2>/dev/null)" != "${packages[*]}" ]; then
  # By apt-get: debootstrap takes the first of several packages that would do, also where it is one that does not exist.
  scripts/progress.sh "Packages for arm64" unshare --root="$HVD_ARM64_ROOT" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${packages[@]}"
  echo "${packages[*]}" >"$HVD_ARM64_ROOT/etc/hvd-packages"
fi
[ -s "$HVD_ARM64_ROOT/etc/hosts" ] || echo "127.0.0.1 localhost" >"$HVD_ARM64_ROOT/etc/hosts"  # a small Debian has none
mount_in "$HVD_ARM64_ROOT"
if [ $# -gt 0 ]; then exec "$@"; fi
exec .venv/bin/python scripts/suites.py arm64
