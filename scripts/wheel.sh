#!/usr/bin/env bash
# Makes a self-contained wheel in dist/ for $PYTHON, by default the one of .venv: auditwheel puts libgloo and libuv inside,
# under private names. Another Python gets what the build needs from pip, for the build alone. `wheel.sh arm64`, inside
# scripts/arm64.sh, makes it for the Python of the Debian for arm64 there.
set -euo pipefail
cd "$(dirname "$0")/.."
raw=build/wheel-raw
python=${PYTHON:-.venv/bin/python}
options=(-v --disable-pip-version-check --no-deps -w "$raw")
audit=()
if [ "$python" = .venv/bin/python ]; then options+=(--no-build-isolation); fi
if [ "${1:-}" = arm64 ]; then
  debian=$HVD_ARM64_ROOT/usr
  python_of=$(basename "$debian"/include/python3.*)
  if [ "$python_of" != "$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')" ]; then
    echo "The Debian for arm64 has $python_of: $python must be of that version, too." >&2
    exit 1
  fi
  export _PYTHON_HOST_PLATFORM=linux-aarch64  # the tag of the wheel
  suffix=.cpython-${python_of//[!0-9]/}-aarch64-linux-gnu.so
  for word in "CMAKE_TOOLCHAIN_FILE=$PWD/cmake/arm64.cmake" "Python_INCLUDE_DIR=$debian/include/$python_of" \
    "PYTHON_MODULE_EXTENSION=$suffix"; do
    options+=(-C "cmake.define.$word")
  done
  audit=(--ldpaths "$debian/lib/aarch64-linux-gnu:$debian/lib")
fi
rm -rf "$raw"
scripts/progress.sh "The wheel" "$python" -m pip wheel "${options[@]}" .
PATH="$PWD/.venv/bin:$PATH" .venv/bin/auditwheel repair "${audit[@]}" -w dist "$raw"/horovod_gloo-*.whl
# With kernels for GPUs and ranges for profilers, or why without: else the log alone says it.
for part in "Kernels for GPUs" "NVTX ranges"; do
  echo "In the wheel: $(grep -o "$part: .*" build/the-wheel.log | tail -1)"
done
ls -1t dist/*.whl | head -1
