"""horovod.run() of a function that trains elastically, and the standard input of elastic jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import horovod


def test_a_function_survives_and_its_last_round_returns(tmp_path: Path) -> None:
    """A process that came later ends the job alone: it has got the function, and nobody else's report counts."""

    def work(folder: Path, *, until: int) -> tuple[int, int, int, int]:
        import sys

        from worker_support import broadcast_object

        from horovod._common.session import init, rank, size
        from horovod.common.elastic import ObjectState, restart_session, run_fn

        def train(state: ObjectState) -> None:
            while state.batch < until or size() > 1:
                state.batch += 1
                state.commit()
                if size() == 2 and state.batch == until:
                    (folder / "new").write_text("localhost:2\n127.0.0.1:1\n")
                    (folder / "new").rename(folder / "hosts")
                if size() == 3 and rank() == 1:
                    raise ValueError("this rank has had enough")

        assert sys.stdin.read() == ""
        init()
        first = (rank(), size())
        state = ObjectState(broadcast_object, rank, batch=0)
        run_fn(train, restart_session)(state)
        return (*first, rank(), size())

    (tmp_path / "hosts").write_text("localhost:2\n")
    results = horovod.run(
        work,
        (tmp_path,),
        {"until": 5},
        num_proc=2,
        min_num_proc=1,
        max_num_proc=3,
        host_discovery_script=f"cat {tmp_path}/hosts",
    )
    assert results == [(2, 3, 0, 1)]


def test_a_function_that_fails_everywhere_is_the_cause() -> None:
    def work() -> Any:
        raise LookupError("no data here")

    with pytest.raises(RuntimeError, match=r"rank \d raised LookupError: no data here\nProcess name: \S+\[0\]\nExit") as caught:
        horovod.run(work, num_proc=2, min_num_proc=1, hosts="localhost:1,127.0.0.1:1")
    assert isinstance(caught.value.__cause__, LookupError)


def test_an_elastic_jobs_input_goes_to_its_first_rank_0(horovodrun_path: str) -> None:
    job = [horovodrun_path, "-np", "2", "--min-np", "2", "--stdin", "rank0", "cat"]
    done = subprocess.run(job, input="a\nb\n", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:a\n[0]<stdout>:b\n"), done


def test_a_process_that_starts_later_gets_all_of_a_large_input(horovodrun_path: str, tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from horovod._common.session import init
print(len(sys.stdin.buffer.read()), flush=True)
first = Path(sys.argv[1])
if os.environ["HOROVOD_RANK"] == "1" and not first.exists():
    first.touch()
    os._exit(1)
init()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "first")]
    job = [horovodrun_path, "-np", "2", "--min-np", "2", "--stdin", "all", *command]
    done = subprocess.run(job, input="x" * 1_000_000, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:1000000" for rank in (0, 1, 1)], done
