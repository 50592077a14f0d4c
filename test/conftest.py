"""Fixtures of all Python suites: starting real jobs through horovodrun; what tests of ranks ask for."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from jobs import DEADLINE_S, Job, run_to_end

# Folders, and the package without which nothing of them is collected. `make test-tensorflow`, test-mxnet and test-spark
# have environments with those that others lack.
NEEDS = {
    "e2e/tensorflow": "tensorflow", "e2e/keras": "keras", "e2e/jax": "jax", "e2e/mxnet": "mxnet",
    "e2e/lightning": "pytorch_lightning", "python/ray": "ray",
}  # fmt: skip


@functools.cache
def is_installed(package: str) -> bool:
    """A folder of that name on the path, one of those above for example, is a namespace package without an origin."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    path = f"{collection_path.relative_to(Path(__file__).parent).as_posix()}/"
    lacks = (not is_installed(package) for folder, package in NEEDS.items() if path.startswith(f"{folder}/"))
    return True if any(lacks) else None


def pytest_configure() -> None:
    """Shells ignore interrupts for what they start in the background, nohup hangups: jobs would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # A handler is not inherited by what is started, and these tests still outlive the hangup.
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files marked `takes(seconds)` begin first, the longest before the others: one that begins last ends alone, while
    the other workers wait for it."""

    def seconds(item: pytest.Item) -> float:
        mark = item.get_closest_marker("takes")
        return float(mark.args[0]) if mark else 0.0

    items.sort(key=seconds, reverse=True)


@pytest.fixture(scope="session")
def horovodrun_path() -> str:
    """The launcher: HVD_HOROVODRUN, or the one next to this Python, or the one on PATH."""
    beside = Path(sys.executable).parent / "horovodrun"
    found = os.environ.get("HVD_HOROVODRUN") or (str(beside) if beside.exists() else shutil.which("horovodrun"))
    if not found:
        pytest.skip("horovodrun is neither named by HVD_HOROVODRUN nor on PATH")
    return found


RunJob = Callable[..., Job]


@pytest.fixture
def horovodrun(horovodrun_path: str) -> RunJob:
    """run(2, "script.py", ...) starts that Python script on two ranks and waits for the end of the job.

    The launcher ends the survivors of a failure after a second, in which a busy machine may not let them say what they heard.
    With `survive` they have a minute.
    """

    def run(
        ranks: int,
        *command: str,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
        survive: bool = False,
    ) -> Job:
        python = [sys.executable]
        if survive:
            flags = (*flags, "--kill-grace", "60")
            python = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", sys.executable]
        return run_to_end([horovodrun_path, "-np", str(ranks), *flags, *python, *command], env, deadline_s)

    return run


@pytest.fixture
def several_ranks() -> None:
    """Marks a test of the folders ranks/ that makes no sense on one rank: rank_world.choose() leaves it out there."""
