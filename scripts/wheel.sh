#!/usr/bin/env bash
# Makes a self-contained wheel in dist/ for $PYTHON, by default the one of .venv: auditwheel puts libgloo and libuv inside,
# under private names. Another Python gets what the build needs from pip, for the build alone.
set -euo pipefail
cd "$(dirname "$0")/.."
raw=build/wheel-raw
python=${PYTHON:-.venv/bin/python}
options=(-v --disable-pip-version-check --no-deps -w "$raw")
if [ "$python" = .venv/bin/python ]; then options+=(--no-build-isolation); fi
rm -rf "$raw"
scripts/progress.sh "The wheel" "$python" -m pip wheel "${options[@]}" .
PATH="$PWD/.venv/bin:$PATH" .venv/bin/auditwheel repair -w dist "$raw"/horovod_gloo-*.whl
# With kernels for GPUs and ranges for profilers, or why without: else the log alone says it.
for part in "Kernels for GPUs" "NVTX ranges"; do
  echo "In the wheel: $(grep -o "$part: .*" build/the-wheel.log | tail -1)"
done
ls -1t dist/*.whl | head -1
