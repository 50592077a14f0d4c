"""A Keras script trains on while its discovery script lists another host, and takes it away again."""

from __future__ import annotations

import re
import sys

import pytest
from elastic_job import StartElastic

from jobs import ROOT

EXAMPLE = ROOT / "examples" / "keras_digits_elastic.py"


@pytest.mark.slow
def test_digits_are_learned_while_hosts_change(start_elastic: StartElastic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    flags = ("-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", "cat hosts")
    # An epoch takes 0.3 s at least, and the script runs every second: the changes come long before the end.
    command = (sys.executable, str(EXAMPLE), "--epochs", "24", "--pause", "0.3")
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
