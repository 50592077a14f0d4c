"""Runs test suites one after another and prints one summary line for each: `name: N passed, N failed, N skipped`.

A suite's output is in build/logs/<name>.log; if it fails, its last lines are printed. A suite that ran nothing has
failed. Usage: suites.py full|quick|slow|sanitizers|lint|torch|tensorflow|arm64|NAME...
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
BIN = Path(sys.executable).parent
TAIL_LINES = 80
PLACES = 3  # where a failed suite's log is quoted before its end
DEADLINE_S = 30 * 60  # of one command: what hangs must not use up the time of the other suites, nor hide where it hangs
SLOW_DEADLINE_S = 4 * 3600


@dataclass(frozen=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_catch2(log: str) -> Counts:
    """Sums the test cases of the Catch2 programs in a `ctest -V` log; a fuzz target's corpus counts as one test."""
    total = Counts()
    for cases in re.findall(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)", log):
        total += Counts(passed=int(cases))
    for line in re.findall(r"test cases:.*", log):
        numbers = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed)", line)}
        total += Counts(passed=numbers.get("passed", 0), failed=numbers.get("failed", 0))
    total += Counts(passed=len(re.findall(r"^\d+: \d+ passed, 0 failed, 0 skipped", log, re.MULTILINE)))
    skipped = len(re.findall(r"^\d+: SKIPPED: ", log, re.MULTILINE))  # said by a test case that then ends as if passed
    return total + Counts(passed=-skipped, skipped=skipped)


def count_pytest(log: str) -> Counts:
    """Reads the closing line of pytest, that of rank 0 where ranks ran it."""
    lines = re.findall(r"^(?:\[0\]<stdout>:)?=+ (.*) in [\d.]+s.*=+$", log, re.MULTILINE)
    numbers = {word: int(n) for line in lines[-1:] for n, word in re.findall(r"(\d+) (\w+)", line)}
    return Counts(
        numbers.get("passed", 0),
        numbers.get("failed", 0) + numbers.get("error", 0) + numbers.get("errors", 0),
        numbers.get("skipped", 0),
    )


def count_steps(log: str) -> Counts:
    """Counts the commands of a suite whose steps just succeed or fail."""
    return Counts(passed=len(re.findall(r"^step ok: ", log, re.MULTILINE)))


@dataclass(frozen=True)
class Suite:
    name: str
    commands: tuple[tuple[str, ...], ...]
    count: Callable[[str], Counts]
    kinds: tuple[str, ...] = ("full",)
    env: tuple[tuple[str, str], ...] = ()


def cpp(preset: str, kinds: tuple[str, ...], *, label: str = "") -> Suite:
    test = ["ctest", "--preset", preset, "-V", "-j2", *(["-L", label] if label else ["-LE", "slow"])]
    name = f"cpp-{preset}" + (f"-{label}" if label else "")
    commands = (("cmake", "--preset", preset), ("cmake", "--build", "--preset", preset), tuple(test))
    return Suite(name, commands, count_catch2, kinds)


def pytest(name: str, *args: str, workers: int, kinds: tuple[str, ...] = ("full",)) -> Suite:
    """Files run side by side, for most tests wait most of the time. A file's tests follow one another. Files begin in
    the order of test/conftest.py: xdist's own, most tests first, leaves jobs that run hundreds of tests for the end."""
    options = ("-v", "-ra", "--durations=20", "-p", "no:cacheprovider", "-n", str(workers))
    spread = ("--dist", "loadfile", "--no-loadscope-reorder")
    return Suite(name, ((str(BIN / "python"), "-m", "pytest", *options, *spread, *args),), count_pytest, kinds)


# Folders with suites of their own, the last three in environments of their own (scripts/environment_tests.py).
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "ray", "mxnet", "spark", "lightning")
OWN_SUITES = tuple(f"--ignore=test/e2e/{framework}" for framework in FRAMEWORKS)


def launcher(preset: str, *kinds: str) -> Suite:
    """The launcher's end-to-end tests with a launcher that a sanitizer watches."""
    made = pytest(f"launcher-{preset}", "test/e2e/launcher", "-m", "not slow", workers=3, kinds=kinds)
    return replace(made, env=(("HVD_HOROVODRUN", str(ROOT / "build" / preset / "launcher" / "horovodrun")),))


CHECK_FORMAT = f"git ls-files -z '*.h' '*.cc' '*.inc' | xargs -0 {BIN / 'clang-format'} --dry-run --Werror"
LINT = Suite(
    "lint",
    (
        (str(BIN / "mypy"), "--config-file", "pyproject.toml"),
        (str(BIN / "ruff"), "check", "python", "examples", "scripts", "test", "bench"),
        ("bash", "-c", CHECK_FORMAT),
        (str(BIN / "python"), "test/arch/includes_test.py"),
    ),
    count_steps,
    ("full", "quick", "lint"),
)

SUITES = (
    LINT,
    cpp("dev", ("full", "quick")),
    pytest("python", "test/python", workers=2, kinds=("full", "quick", "torch")),
    pytest("torch", "test/e2e/torch", "-m", "not slow", workers=2, kinds=("full", "torch")),
    pytest("tensorflow", "test/e2e/tensorflow", "-m", "not slow", workers=2, kinds=("full", "tensorflow")),
    pytest("keras", "test/e2e/keras", "-m", "not slow", workers=2, kinds=("full", "tensorflow")),
    pytest("jax", "test/e2e/jax", "-m", "not slow", workers=2),
    pytest("ray", "test/e2e/ray", "-m", "not slow", workers=2),
    pytest("e2e", "test/e2e", "-m", "not slow", *OWN_SUITES, workers=3),
    cpp("asan", ("sanitizers",)),
    launcher("asan", "sanitizers"),
    cpp("tsan", ("sanitizers",)),
    launcher("tsan", "sanitizers"),
    cpp("dev", ("slow",), label="slow"),
    # Inside scripts/arm64.sh.
    cpp("arm64", ("arm64",)),
    Suite("torch-arm64", (("scripts/wheel.sh", "arm64"), ("scripts/arm64_ranks.sh",)), count_pytest, ("arm64",)),
    pytest("e2e-slow", "test/e2e", "-m", "slow", workers=1, kinds=("slow",)),
)


def execute(command: Sequence[str], env: dict[str, str], log: TextIO, deadline_s: float) -> int:
    """The exit code. At the deadline everything the command started is killed, by SIGABRT, at which pytest prints what
    its threads are doing."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        log.write(f"\nstill running after {deadline_s} s: {' '.join(command)}\n")
        return -signal.SIGABRT
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def why(suite: Suite) -> str:
    """The first places of a suite's log that say what failed, for those who see only the end of a run."""
    lines = (LOGS / f"{suite.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    said = re.compile(r"FAILED:$|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:|terminate called|^E  ")
    places = [i for i, line in enumerate(lines) if said.search(line)][:PLACES]
    return "\n".join(line[:160] for i in places for line in ("...", *lines[max(0, i - 4) : i + 8]))


def run(suite: Suite) -> tuple[bool, Counts]:
    """Runs the commands of a suite until one fails; prints its summary line."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log_path = LOGS / f"{suite.name}.log"
    env = dict(os.environ, HVD_HOROVODRUN=str(BIN / "horovodrun"), PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    env.update(suite.env)
    start = time.monotonic()
    ok = True
    with log_path.open("w", encoding="utf-8") as log:
        for command in suite.commands:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            code = execute(command, env, log, SLOW_DEADLINE_S if "slow" in suite.kinds else DEADLINE_S)
            log.write(f"step ok: {command[0]}\n" if code == 0 else f"step failed ({code}): {' '.join(command)}\n")
            log.flush()
            ok = ok and code == 0
            if code != 0 and suite is not LINT:
                break
    text = log_path.read_text(encoding="utf-8", errors="replace")
    counts = suite.count(text)
    if not ok and counts.failed == 0:
        counts += Counts(failed=1)
    if ok and counts.passed == 0:
        print(f"{suite.name}: ran nothing, which counts as a failure")
        ok, counts = False, Counts(failed=1)
    if not ok:
        print("\n".join(text.splitlines()[-TAIL_LINES:]))
    print(f"{suite.name}: {counts}  ({time.monotonic() - start:.0f} s, build/logs/{suite.name}.log)", flush=True)
    return ok, counts


def main(words: Sequence[str]) -> int:
    chosen = [s for s in SUITES if any(w in s.kinds or w == s.name for w in words)]
    if not chosen:
        print(f"no such suite: {' '.join(words)}; there are: {', '.join(s.name for s in SUITES)}", file=sys.stderr)
        return 2
    results = [run(suite) for suite in chosen]
    total = sum((counts for _, counts in results), Counts())
    print(total)
    for suite, (ok, _) in zip(chosen, results, strict=True):
        if not ok:
            print(why(suite))
    return 0 if all(ok for ok, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["full"]))
