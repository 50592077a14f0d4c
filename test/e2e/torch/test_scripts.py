"""Scripts as users write them, each with what it expects at its end, in one world of two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import SUPPORT

FOLDER = Path(__file__).parent
SCRIPTS = sorted((FOLDER / "scripts").glob("*.py"))
# These compile, or start other processes, for longer than the others take together.
SLOW = {"compiled_model", "data_loader_workers"}


def world(horovodrun: Any, scripts: list[Path]) -> Any:
    env = {"OMP_NUM_THREADS": "1", **SUPPORT}
    return horovodrun(2, str(FOLDER / "run_scripts.py"), *map(str, scripts), env=env)


def check(job: Any, scripts: list[Path]) -> None:
    for rank in range(2):
        said = f"[{rank}]<stdout>:script ok: "
        ended = [line.removeprefix(said) for line in job.out.splitlines() if line.startswith(said)]
        assert ended == [script.stem for script in scripts], job.text
    assert job.code == 0, job.text
    assert "Traceback" not in job.err, job.text


def test_users_scripts_succeed(horovodrun: Any) -> None:
    quick = [script for script in SCRIPTS if script.stem not in SLOW]
    check(world(horovodrun, quick), quick)


@pytest.mark.slow
def test_users_slow_scripts_succeed(horovodrun: Any) -> None:
    slow = [script for script in SCRIPTS if script.stem in SLOW]
    assert {script.stem for script in slow} == SLOW
    check(world(horovodrun, slow), slow)
