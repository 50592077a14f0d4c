"""A torch script that trains on when rank 0 is killed: nobody's parameters differ in the end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from elastic_job import StartElastic

from jobs import ROOT

EXAMPLE = ROOT / "examples" / "pytorch_digits_elastic.py"


# Kills itself when it has said that the second epoch is over, as rank 0 alone does; once.
KILLED = """
import builtins, os, runpy, signal, sys
say = print

def say_and_die(*words, **how):
    say(*words, **how)
    if words[0].startswith("epoch 2/8") and not os.path.exists(mark):
        os.mkdir(mark)
        os.kill(os.getpid(), signal.SIGKILL)

mark, *sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
builtins.print = say_and_die
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_digits_are_learned_though_rank_0_is_killed(start_elastic: StartElastic, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "killed"), str(EXAMPLE), "--epochs", "8", "--total-batch", "64")
    job = start_elastic("-np", "2", "--min-np", "2", command=(sys.executable, "-c", KILLED, *arguments))
    assert job.wait() == 0, job
    begins = re.findall(r"rank (\d) of 2 begins at epoch (\d+), batch (\d+), 32 images", job.out)
    assert len(begins) == 4, job
    assert {one[0] for one in begins[2:]} == {"0", "1"}
    assert {one[1:] for one in begins[2:]} == {begins[2][1:]}, "both go on at the same place"
    assert int(begins[2][1]) >= 2, job
    assert re.search(r"test accuracy \S+ \(wanted 0\.95\); all 2 ranks hold bitwise equal parameters", job.out), job
    job.wait_all_gone()
