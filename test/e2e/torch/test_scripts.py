"""Scripts as users write them, each with what it expects at its end (contract appendix C)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
# These take several seconds beyond the import of torch, or repeat in another form what ranks/ tests.
SLOW = {
    "amp_scaler",
    "compiled_model",
    "contrastive",
    "data_loader_workers",
    "embedding_exchange",
    "gan",
    "local_sgd",
    "metrics_and_objects",
    "process_sets",
    "sessions",
    "sharded_optimizer",
    "transfer_learning",
    "warmup_schedule",
}
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))


def marked(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("name", [marked(name) for name in NAMES])
def test_a_users_script_succeeds(name: str, horovodrun: Any) -> None:
    job = horovodrun(2, str(SCRIPTS / f"{name}.py"), env={"OMP_NUM_THREADS": "1"}, deadline_s=120)
    assert job.code == 0, job.text
    assert "Traceback" not in job.err, job.text


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 24
    assert set(NAMES) >= SLOW
