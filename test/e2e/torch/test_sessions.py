"""Sessions that follow each other in one process."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import SUPPORT, assert_soon, run_to_end

# Each cycle starts with a barrier, as test suites written for Horovod do.
CYCLES = """
import time, torch, horovod.torch as hvd
hvd.init()
sets = {sets}
begin = time.monotonic()
for i in range({cycles}):
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets=sets)
    assert hvd.allreduce(torch.tensor([i]), op=hvd.Sum).item() == i * hvd.size()
    for s in sets or ():
        if s.included():
            assert hvd.allreduce(torch.tensor([i]), op=hvd.Sum, process_set=s).item() == i * s.size()
print(f"cycles took {{time.monotonic() - begin:.2f}} s")
hvd.barrier()  # a rank that ends fails what others still do in sets of their own
"""
LIMIT_S = 10.0  # of a hundred


@pytest.mark.slow
@pytest.mark.parametrize("sets", ["None", "[hvd.ProcessSet([0]), hvd.ProcessSet([1])]"], ids=["world", "sets"])
def test_a_hundred_sessions_take_less_than_ten_seconds(sets: str, horovodrun: Any) -> None:
    job = horovodrun(2, "-c", CYCLES.format(sets=sets, cycles=100))
    assert job.code == 0, job.text
    took = [float(seconds) for seconds in re.findall(r"cycles took ([\d.]+) s", job.out)]
    assert len(took) == 2, job.text
    assert max(took) < LIMIT_S


def test_a_rank_that_gives_other_sets_fails_the_job_in_words(horovodrun: Any) -> None:
    job = horovodrun(
        2,
        "-c",
        "import horovod.torch as hvd, os\n"
        "hvd.init(process_sets=[hvd.ProcessSet([0])] if os.environ['HOROVOD_RANK'] == '0' else None)",
    )
    assert job.code == 1, job.text
    assert job.err.count("ValueError") >= 1
    assert "rank 0 gave 1 process set, rank 1 gave 0 process sets" in job.err


@pytest.mark.parametrize("call", ["hvd.add_process_set([0])", "hvd.remove_process_set(some)", "hvd.join()"])
def test_a_rank_that_dies_is_named_to_those_that_wait_for_all(call: str, horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, signal, time, torch, horovod.torch as hvd\n"
        "hvd.init(process_sets='dynamic')\n"
        "some = hvd.add_process_set([1])\n"
        "hvd.barrier()\n"
        "if hvd.rank() == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "begin = time.monotonic()\n"
        "try:\n"
        f"    {call}\n"
        "except hvd.HorovodInternalError as error:\n"
        "    print('noticed', time.monotonic() - begin, error, flush=True)\n"
        "try:\n"
        "    hvd.add_process_set([0])\n"
        "except hvd.HorovodInternalError as error:\n"
        "    print('later', error, flush=True)\n"
    )

    def seconds() -> float:
        job = horovodrun(2, str(script), survive=True)
        assert job.code == 128 + signal.SIGKILL, job.text
        noticed = re.search(r"noticed ([\d.]+) .*rank 1", job.out)
        assert noticed, job.text
        assert re.search(r"later .*rank 1", job.out), job.text
        return float(noticed[1])

    assert_soon(seconds, 1.0)


@pytest.mark.parametrize("sessions", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_sessions_in_one_process_leave_nothing(sessions: int) -> None:
    program = (
        "import os, torch, horovod.torch as hvd\n"
        "from living_threads import living_threads\n"
        f"for i in range({sessions}):\n"
        "    hvd.init(); assert hvd.allreduce(torch.ones(1)).item() == 1; hvd.shutdown()\n"
        "    if i == 10: fds, threads = len(os.listdir('/proc/self/fd')), living_threads()\n"
        "assert len(os.listdir('/proc/self/fd')) <= fds, os.listdir('/proc/self/fd')\n"
        "assert living_threads() <= threads\n"
        "print('left nothing')\n"
    )
    job = run_to_end([sys.executable, "-c", program], SUPPORT, deadline_s=300)
    assert job.out.strip() == "left nothing", job.text
