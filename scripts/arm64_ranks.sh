#!/usr/bin/env bash
# arm64_ranks.sh WORDS...: torch's tests of ranks, with the newest wheel for arm64, on two emulated ranks; the words are
# pytest's. Inside scripts/arm64.sh. Packages lie in build/arm64-python, where this machine's pip puts them: Python need not
# be emulated for that.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=build/arm64-python
python=/usr/bin/python3
# With what they need, since pip would read the conditions of dependencies for this machine.
wanted=(torch==2.10.0 numpy typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec filelock cloudpickle
  pytest pluggy iniconfig packaging pygments)
platforms=()
for platform in manylinux_2_{35,28,27,17} manylinux2014; do platforms+=(--platform "${platform}_aarch64"); done
pip=(.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$packages" "${platforms[@]}"
  --only-binary :all: --python-version "$(basename "$HVD_ARM64_ROOT"/usr/include/python3.* | tr -dc '0-9.')")
if [ "$(cat "$packages/.wanted" 2>/dev/null)" != "${wanted[*]}" ]; then
  rm -rf "$packages"
  scripts/progress.sh "Python packages for arm64" "${pip[@]}" "${wanted[@]}"
  echo "${wanted[*]}" >"$packages/.wanted"
fi
"${pip[@]}" --upgrade "$(ls -1t dist/horovod_gloo-*_aarch64.whl | head -1)"
export PYTHONPATH=$PWD/$packages
# Left out: qemu 7.2 maps no 24 GiB, so ranks have no arenas there, from which callers exchange tensors above 16 KiB.
exec unshare --root="$HVD_ARM64_ROOT" --wd="$PWD" "$packages/bin/horovodrun" -np 2 "$python" -m pytest -x -ra \
  -p no:cacheprovider test/e2e/torch/ranks \
  --deselect test/e2e/torch/ranks/test_without_the_gil.py::test_a_large_tensor_is_copied_without_the_gil "$@"
