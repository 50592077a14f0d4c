"""Runs TensorFlow's and Keras' rank tests with the one wheel of dist/ on several versions of both.

    make test-matrix            # builds the wheel, then all rows
    scripts/matrix.py 2.15      # one row, with the newest wheel of dist/

Each row has an environment of its own in build/matrix/, which stays for the next run. Prints a Markdown table, also
written to build/matrix/result.md; docs/compatibility.md holds the last one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "matrix"
RANKS = ROOT / "test" / "e2e" / "tensorflow" / "ranks"
TESTS = ("pytest", "scikit-learn")
DEADLINE_S = 1800


@dataclass(frozen=True)
class Row:
    """One combination of versions. `packages` are requirements; `env` is for the ranks."""

    name: str
    packages: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return WORK / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


ROWS = (
    Row("2.15", ("tensorflow-cpu==2.15.1", "keras==2.15.0", "numpy<2")),
    Row("2.16", ("tensorflow-cpu==2.16.2", "tf_keras==2.16.0", "numpy<2"), (("TF_USE_LEGACY_KERAS", "1"),)),
    Row("2.18", ("tensorflow-cpu==2.18.1", "keras==3.15.1")),
    Row("2.21", ("tensorflow-cpu==2.21.0", "keras==3.15.1")),
)


@dataclass(frozen=True)
class Result:
    ranks: int
    passed: int
    skipped: int
    ok: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.skipped} skipped" if self.ok else f"FAILED after {self.passed} passed"


def newest_wheel() -> Path:
    wheels = sorted((ROOT / "dist").glob("horovod_gloo-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit("no wheel in dist/; run `make wheel`")
    return wheels[-1]


def prepare(row: Row, wheel: Path) -> None:
    """The row's environment with its packages and the wheel. Packages are installed once, the wheel each time."""
    stamp = row.folder / ".packages"
    wanted = "\n".join((*row.packages, *TESTS))
    pip = (str(row.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(row.folder, clear=True, with_pip=True)
        subprocess.run([*pip, *row.packages, *TESTS], check=True)
        stamp.write_text(wanted)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(wheel)], check=True)
    subprocess.run([*pip, str(wheel)], check=True)  # what it needs, when that is missing


def run(row: Row, ranks: int) -> Result:
    """The rank tests on so many ranks; their output goes to build/matrix/<row>-np<ranks>.log."""
    command = [str(row.folder / "bin" / "horovodrun"), "-np", str(ranks), str(row.python), "-m", "pytest", "-q"]
    command += ["-x", "-p", "no:cacheprovider", str(RANKS)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | dict(row.env, HVD_EVERY_SIZE="1")
    start = time.monotonic()
    log = WORK / f"{row.name}-np{ranks}.log"
    with log.open("w") as out:
        code = subprocess.run(
            command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
            timeout=DEADLINE_S,
        ).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    passed = [int(count) for count in re.findall(r"(\d+) passed.* in [\d.]+s", text)]
    ok = code == 0 and len(passed) == ranks and min(passed) > 0
    if not ok:
        print("\n".join(text.splitlines()[-60:]), file=sys.stderr)
    skipped = [int(count) for count in re.findall(r"(\d+) skipped.* in [\d.]+s", text)]
    return Result(ranks, min(passed, default=0), max(skipped, default=0), ok, time.monotonic() - start)


def versions(row: Row) -> str:
    """What is really installed, for the table."""
    code = (
        "import importlib.metadata as m\n"
        "def of(name):\n"
        "    try: return f'{name} {m.version(name)}'\n"
        "    except m.PackageNotFoundError: return ''\n"
        "print(', '.join(filter(None, map(of, ['tensorflow-cpu', 'keras', 'tf-keras', 'numpy']))))"
    )
    return subprocess.run([str(row.python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        raise SystemExit(f"no such row: {' '.join(sorted(unknown))}; there are: {' '.join(row.name for row in ROWS)}")
    WORK.mkdir(parents=True, exist_ok=True)
    wheel = newest_wheel()
    lines = ["| row | versions | environment | np=1 | np=2 |", "|---|---|---|---|---|"]
    ok = True
    for row in (row for row in ROWS if not names or row.name in names):
        prepare(row, wheel)
        results = [run(row, ranks) for ranks in (1, 2)]
        ok = ok and all(result.ok for result in results)
        variables = " ".join(f"{key}={value}" for key, value in row.env)
        lines.append(f"| {row.name} | {versions(row)} | {variables} | {results[0]} | {results[1]} |")
        print(f"{lines[-1]}  ({sum(result.seconds for result in results):.0f} s)", flush=True)
    table = "\n".join(lines) + "\n"
    (WORK / "result.md").write_text(table)
    print(table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
