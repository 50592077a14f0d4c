"""Lightning's Trainer on the ranks of Horovod. The tests of ranks/ run on one rank and on two."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import ROOT, assert_learned, run_rank_tests, run_to_end

HERE = Path(__file__).parent


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_ranks_agree(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks, {"OMP_NUM_THREADS": "1"}, deadline_s=300.0)


@pytest.mark.parametrize(("how", "said"), [("raises", "this rank has had enough"), ("killed", "rank 1 .*SIGKILL")])
def test_a_lost_rank_ends_the_job(horovodrun: Any, how: str, said: str, tmp_path: Path) -> None:
    job = horovodrun(2, str(HERE / "train_until_lost.py"), how, str(tmp_path), survive=True, deadline_s=100.0)
    assert job.code != 0, job.text
    assert re.search(said, job.err), job.text
    assert "rank 0 heard: " in job.err, job.text


def test_digits_are_learned(horovodrun: Any) -> None:
    job = horovodrun(2, str(ROOT / "examples" / "lightning_digits.py"))
    assert_learned(job, "test accuracy _ (wanted 0.95); all 2 ranks hold bitwise equal parameters")


def test_lightning_is_asked_for_in_words() -> None:
    """The process does as if neither package were installed."""
    code = (
        "import sys\n"
        "sys.modules.update({name: None for name in ('lightning', 'pytorch_lightning')})\n"
        "import horovod.torch.lightning\n"
    )
    job = run_to_end([sys.executable, "-c", code])
    assert job.code == 1, job.text
    assert "ImportError: horovod.torch.lightning needs Lightning 2.0 or newer" in job.err, job.text
    assert "pip install pytorch-lightning" in job.err
