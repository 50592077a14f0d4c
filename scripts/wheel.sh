#!/usr/bin/env bash
# Makes a self-contained wheel for this Python in dist/: auditwheel puts libgloo and libuv inside, under private names.
set -euo pipefail
cd "$(dirname "$0")/.."
raw=build/wheel-raw
rm -rf "$raw"
scripts/progress.sh "The wheel" .venv/bin/pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps -w "$raw" .
PATH="$PWD/.venv/bin:$PATH" .venv/bin/auditwheel repair -w dist "$raw"/horovod_gloo-*.whl
ls -1t dist/*.whl | head -1
