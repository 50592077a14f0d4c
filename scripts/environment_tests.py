"""Runs the tests of horovod.spark and HorovodStrategy, or of horovod.mxnet, with the newest wheel of dist/, in an
environment of their own.

    make test-spark                          # builds the wheel, then all of them
    scripts/environment_tests.py spark -k store   # the words after the name are pytest's

The environments, in build/matrix/, stay for the next run. pyspark is a source package of 455 MB. MXNet 1.9.1, the last
release, uses names that numpy has dropped in 1.24. So neither is in .venv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from matrix import ROOT, WORK, Row, newest_wheel, prepare

ROWS = {
    "spark": Row(
        "spark",
        (
            "pyspark==4.3.0",
            "torch==2.13.0",
            "tensorflow-cpu==2.21.0",
            "keras==3.15.1",
            "pytorch-lightning==2.6.6",
            "pandas<3",
            "scikit-learn",
            "numpy",
            "fsspec",
            "pyarrow",
        ),
    ),
    # scikit-learn has the digits of the example; newer ones need a newer numpy.
    "mxnet": Row("mxnet", ("mxnet==1.9.1", "numpy==1.23.5", "scikit-learn==1.3.2")),
}
TESTS = {"spark": ("test/python/spark", "test/e2e/spark", "test/e2e/lightning"), "mxnet": ("test/e2e/mxnet",)}
DEADLINE_S = 1800


def need_java() -> None:
    """Installs a JRE where Debian's package manager may be used, as scripts/setup.sh does for other packages."""
    if shutil.which("java") is None:
        subprocess.run([str(ROOT / "scripts" / "setup.sh"), "spark"], cwd=ROOT, check=True)


def main(name: str, words: Sequence[str]) -> int:
    if name == "spark":
        need_java()
    WORK.mkdir(parents=True, exist_ok=True)
    row = ROWS[name]
    prepare(row, newest_wheel())
    command = [str(row.python), "-m", "pytest", "-v", "-ra", "-p", "no:cacheprovider", *TESTS[name], *words]
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HVD_HOROVODRUN")}
    done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False)
    return done.returncode


if __name__ == "__main__":
    if sys.argv[1:2] not in [[name] for name in ROWS]:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(ROWS)} [words for pytest]")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
