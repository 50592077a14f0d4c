"""A rank that raises, exits or is killed: the others hear of it, and who is to blame is named."""

from __future__ import annotations

import math
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from jobs import assert_soon, torch_script

# Rank 1 raises and takes its time to end; rank 0, which fails because of it, exits sooner and with another code.
RAISING = """
    import atexit
    if hvd.rank() == 1:
        atexit._clear()  # what runs last: the wait below; then Horovod's own
        atexit.register(lambda: time.sleep({slow}))
        atexit.register(hvd.mpi_ops._basics._shutdown_at_exit)
        time.sleep(0.2)
        print("raised", time.time(), flush=True)
        raise KeyError("oops")
    try:
        hvd.allreduce(torch.ones(1), name="alone")
    except hvd.HorovodInternalError as error:
        print("noticed", time.time(), error, flush=True)
        os._exit(3)  # the end of an interpreter with torch takes up to seconds on a busy machine
"""


@pytest.mark.parametrize("slow", [0.0, 0.8])
def test_an_uncaught_exception_is_named_by_the_others_and_blamed(slow: float, horovodrun: Any, tmp_path: Path) -> None:
    script = torch_script(tmp_path, RAISING.format(slow=slow))

    def seconds() -> float:
        job = horovodrun(2, script, survive=True)
        assert job.code == 1, job.text
        raised = re.search(r"raised ([\d.]+)", job.out)
        noticed = re.search(r"noticed ([\d.]+) rank 1 is lost: uncaught exception KeyError: 'oops'", job.out)
        assert raised, job.text
        assert noticed, job.text
        assert "KeyError: 'oops'" in job.err
        # A rank that takes longer to end than the survivors' grace, as on a busy machine, is ended before it has a code.
        how = "(exited with code 1|failed with an uncaught exception)"
        assert re.search(rf"the job failed: rank 1 on host localhost \(pid \d+\) {how} first", job.err), job.text
        if "After that, rank 0 exited with code 3" not in job.err:
            return math.inf  # it was not its turn in the second for which the launcher listens after the first failure
        return float(noticed[1]) - float(raised[1])

    assert_soon(seconds, 1.0)


# Rank 1 leaves the job in the middle; rank 0 fails because of it, and has exited when rank 1 does. Rank 1 then ends at
# once, not through the end of the interpreter: on a busy machine that outlasts the grace after rank 0's exit.
LEAVING = """
    import atexit
    rank_0 = hvd.broadcast_object(os.getpid(), 0)

    def exit_after_rank_0():
        end = time.monotonic() + 30
        while os.path.exists(f"/proc/{{rank_0}}") and time.monotonic() < end:
            time.sleep(0.01)
        os._exit({code})

    if hvd.rank() == 1:
        atexit._clear()  # what runs last: the wait; before it Horovod's own
        atexit.register(exit_after_rank_0)
        atexit.register(hvd.mpi_ops._basics._shutdown_at_exit)
        sys.exit({code})
    try:
        hvd.allreduce(torch.ones(1), name="alone")
    except hvd.HorovodInternalError as error:
        sys.exit(3)
"""


def test_a_rank_that_exits_with_an_error_is_blamed_though_others_end_sooner(horovodrun: Any, tmp_path: Path) -> None:
    script = torch_script(tmp_path, LEAVING.format(code=7))

    def seconds() -> float:
        job = horovodrun(2, script)
        if job.code == 3:
            return math.inf  # it was not its turn in the second for which the launcher listens after rank 0's exit
        assert job.code == 7, job.text
        blamed = r"the job failed: rank 1 on host localhost \(pid \d+\) exited with code 7 first"
        assert re.search(blamed, job.err), job.text
        assert "After that, rank 0 exited with code 3" in job.err, job.text
        return 0.0

    assert_soon(seconds, 1.0)


def test_a_rank_that_leaves_without_an_error_is_not_blamed(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, torch_script(tmp_path, LEAVING.format(code=0)))
    assert job.code == 3, job.text
    assert re.search(r"the job failed: rank 0 on host localhost \(pid \d+\) exited with code 3", job.err), job.text


def test_an_exception_beside_a_thread_that_waits_is_no_hang(horovodrun: Any, tmp_path: Path) -> None:
    """The interpreter joins threads before it runs anything at exit: the others have to learn of it before."""
    script = torch_script(
        tmp_path,
        """
        import threading
        if hvd.rank() == 1:
            threading.Thread(target=lambda: hvd.allreduce(torch.ones(1), name="never")).start()
            time.sleep(0.2)
            raise KeyError("oops")
        hvd.allreduce(torch.ones(1), name="alone")
        """,
    )
    job = horovodrun(2, script, survive=True)
    assert job.code == 1, job.text
    assert "HorovodInternalError: rank 1 is lost: uncaught exception KeyError: 'oops'" in job.err, job.text
    assert "the job failed: rank 1" in job.err, job.text


def test_an_exception_in_the_middle_of_an_epoch(horovodrun: Any, tmp_path: Path) -> None:
    """Rank 0 fails between two steps of training; the other ranks' error comes out of backward or step."""
    script = torch_script(
        tmp_path,
        """
        model = torch.nn.Linear(100, 100)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
        )
        for step in range(1000):
            if step == 20 and hvd.rank() == 0:
                raise ValueError("bad batch")
            optimizer.zero_grad()
            model(torch.ones(4, 100)).sum().backward()
            optimizer.step()
        """,
    )
    job = horovodrun(3, script, survive=True)
    assert job.code == 1, job.text
    named = re.findall(r"HorovodInternalError: .*rank 0 is lost: uncaught exception ValueError: bad batch", job.err)
    assert len(named) == 2, job.text
    assert "the job failed: rank 0" in job.err, job.text


def test_an_exit_in_the_middle_of_an_epoch(horovodrun: Any, tmp_path: Path) -> None:
    """A rank that leaves early ends the session: an error for the others, no hang."""
    script = torch_script(
        tmp_path,
        """
        for step in range(20):
            hvd.allreduce(torch.ones(10), name="gradient")
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(10), name="gradient")
        hvd.barrier()  # the other has its next gradient under way
        if hvd.rank() == 1:
            sys.exit(0)
        hvd.synchronize(handle)
        """,
    )
    job = horovodrun(2, script)
    assert job.code == 1, job.text
    assert "rank 1 called shutdown() or ended" in job.err, job.text
    assert 'allreduce "allreduce.gradient" was waiting for it' in job.err, job.text
    assert re.search(r"the job failed: rank 0 .* first, after rank 1 had left the job", job.err), job.text


def test_a_rank_that_ends_at_once_with_exit_code_0_is_named(horovodrun: Any, tmp_path: Path) -> None:
    script = torch_script(
        tmp_path,
        """
        hvd.barrier()
        if hvd.rank() == 1:
            os._exit(0)
        hvd.allreduce(torch.ones(1), name="alone")
        """,
    )
    job = horovodrun(2, script)
    assert job.code == 1, job.text
    # Where the machine is slow, the launcher may hear of both ends at once.
    named = r"(because rank 1 on host localhost had|and rank 1 on host localhost, which it calls lost, has) ended"
    assert re.search(rf"the job failed: rank 0 .* first, {named} with exit code 0", job.err), job.text


# Rank 1 ends without an error, while rank 0 waits for it in init(); or it has ended by then.
GONE = """
import os, sys
import horovod.torch as hvd
if {in_a_second_session}:
    hvd.init()
    hvd.barrier()
    hvd.shutdown()
if os.environ["HOROVOD_RANK"] == "1":
    sys.exit(0)
hvd.init()
"""


@pytest.mark.parametrize("in_a_second_session", [False, True])
def test_nobody_waits_in_init_for_a_rank_that_has_ended(
    in_a_second_session: bool, horovodrun: Any
) -> None:
    job = horovodrun(2, "-c", GONE.format(in_a_second_session=in_a_second_session))  # ranks wait ten minutes for one that may still come
    assert job.code == 1, job.text
    gone = (
        r"rank 1 on host localhost \(pid \d+\) has ended with exit code 0, so it will not join the others in init\(\)"
    )
    assert re.search(gone, job.err), job.text
    assert "the job failed: rank 0" in job.err, job.text


def test_a_killed_rank_is_an_error_for_the_others(horovodrun: Any, tmp_path: Path) -> None:
    script = torch_script(
        tmp_path,
        """
        import signal
        hvd.barrier()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            while True:
                hvd.allreduce(torch.ones(1 << 16), name="loop")
        except hvd.HorovodInternalError as error:
            print("noticed after", time.monotonic() - begin, error, flush=True)
        """,
    )

    def seconds() -> float:
        job = horovodrun(2, script, survive=True)
        assert job.code == 128 + signal.SIGKILL, job.text
        noticed = re.search(r"noticed after ([\d.]+)", job.out)
        assert noticed, job.text
        return float(noticed[1])

    assert_soon(seconds, 1.0)
