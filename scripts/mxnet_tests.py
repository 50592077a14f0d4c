"""Runs the tests of horovod.mxnet with the newest wheel of dist/, in an environment of their own.

    make test-mxnet             # builds the wheel, then all tests
    scripts/mxnet_tests.py -k failures

Arguments are pytest's. The environment is build/matrix/mxnet, which stays for the next run: MXNet 1.9.1, the last
release, uses names that numpy has dropped in 1.24, so it cannot be in .venv.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from matrix import ROOT, WORK, Row, newest_wheel, prepare

# scikit-learn has the digits of the example; newer ones need a newer numpy.
ROW = Row("mxnet", ("mxnet==1.9.1", "numpy==1.23.5", "scikit-learn==1.3.2"))


def main(arguments: Sequence[str]) -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    prepare(ROW, newest_wheel())
    command = [str(ROW.python), "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "test/e2e/mxnet", *arguments]
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HVD_HOROVODRUN")}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
