"""Scripts of frameworks that train on when a rank is killed, or hosts come and go: nobody's parameters differ in the end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from elastic_job import StartElastic

from jobs import ROOT

pytestmark = pytest.mark.takes(30)

EXAMPLES = ROOT / "examples"
JAX_WORKER = str(Path(__file__).parent / "jax_worker.py")

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


def test_pytorchs_digits_are_learned_though_rank_0_is_killed(start_elastic: StartElastic, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "killed"), str(EXAMPLES / "pytorch_digits_elastic.py"), "--epochs", "8", "--total-batch", "64")
    job = start_elastic("-np", "2", "--min-np", "2", command=(sys.executable, "-c", KILLED, *arguments))
    assert job.wait() == 0, job
    begins = re.findall(r"rank (\d) of 2 begins at epoch (\d+), batch (\d+), 32 images", job.out)
    assert len(begins) == 4, job
    assert {one[0] for one in begins[2:]} == {"0", "1"}
    assert {one[1:] for one in begins[2:]} == {begins[2][1:]}, "both go on at the same place"
    assert int(begins[2][1]) >= 2, job
    assert re.search(r"test accuracy \S+ \(wanted 0\.95\); all 2 ranks hold bitwise equal parameters", job.out), job
    job.wait_all_gone()


def test_steps_that_jax_has_compiled_go_on_from_the_last_commit(start_elastic: StartElastic, tmp_path: Path) -> None:
    job = start_elastic("-np", "2", "--min-np", "2", command=(sys.executable, JAX_WORKER, str(tmp_path / "killed")))
    assert job.wait() == 0, job
    begins = re.findall(r"rank (\d) of 2 begins at step (\d+)", job.out)
    assert sorted(begins[:2]) == [("0", "0"), ("1", "0")], job
    assert sorted(begins[2:]) == [("0", "9"), ("1", "9")], "both go on from the last commit"
    ends = re.findall(r"rank (\d) ends with (.*) after step 20", job.out)
    assert sorted(ends) == [("0", "[20.0, 20.0, 20.0]"), ("1", "[20.0, 20.0, 20.0]")], job
    job.wait_all_gone()


@pytest.mark.slow
def test_keras_digits_are_learned_while_hosts_change(start_elastic: StartElastic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    flags = ("-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", "cat hosts")
    # An epoch takes 0.3 s at least, and the script runs every second: the changes come long before the end.
    command = (sys.executable, str(EXAMPLES / "keras_digits_elastic.py"), "--epochs", "24", "--pause", "0.3")
    job = start_elastic(*flags, hosts="localhost:1\n", command=command)
    job.wait_for("epoch 1/24")
    job.set_hosts("localhost:1\n127.0.0.1:1\n")
    job.wait_for("rank 1 of 2 begins")
    job.set_hosts("localhost:1\n")
    assert job.wait() == 0, job
    begins = re.findall(r"rank (\d) of (\d) begins at epoch (\d+)", job.out)
    assert [(rank, size) for rank, size, _ in begins if rank == "0"] == [("0", "1"), ("0", "2"), ("0", "1")], job
    assert len({epoch for _, size, epoch in begins if size == "2"}) == 1, "both go on at the same place"
    epochs = [int(n) for n in re.findall(r"epoch (\d+)/24 is done", job.out)]
    assert epochs == sorted(set(epochs)), "none is trained twice: hosts changed, and nobody was lost"
    assert epochs[-1] == 24, job
    assert re.search(r"torch: test accuracy \S+ \(wanted 0\.95\); all 1 ranks hold bitwise equal weights", job.out), job
    job.wait_all_gone()
