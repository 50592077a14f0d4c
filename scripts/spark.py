"""Runs the tests of horovod.spark with a real Spark on this host, in an environment of its own.

    make test-spark             # builds the wheel, then all of them
    scripts/spark.py -k store   # words for pytest; with the newest wheel of dist/

The environment, in build/matrix/spark/, stays for the next run. pyspark is a source package of 455 MB, which is why it
is not in .venv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from matrix import ROOT, WORK, Row, newest_wheel, prepare

SPARK = Row("spark", ("pyspark==4.3.0", "torch==2.13.0", "scikit-learn", "numpy", "fsspec", "pyarrow"))
TESTS = ("test/python/spark", "test/e2e/spark")
DEADLINE_S = 1800


def need_java() -> None:
    """Installs a JRE where Debian's package manager may be used, as scripts/setup.sh does for other packages."""
    if shutil.which("java") is None:
        subprocess.run([str(ROOT / "scripts" / "setup.sh"), "spark"], cwd=ROOT, check=True)


def main(words: Sequence[str]) -> int:
    need_java()
    WORK.mkdir(parents=True, exist_ok=True)
    prepare(SPARK, newest_wheel())
    command = [str(SPARK.python), "-m", "pytest", "-v", "-ra", "-p", "no:cacheprovider", *TESTS, *words]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
