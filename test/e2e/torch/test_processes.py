"""How a Python process with Horovod ends: cleanly and soon, whatever way it goes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from jobs import run_to_end

INIT = "import os, sys, time, torch, horovod.torch as hvd\nhvd.init()\nhvd.allreduce(torch.ones(3))\n"
ENDS = {
    "end of the script": ("", 0),
    "shutdown": ("hvd.shutdown()", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise KeyError('oops')", 1),
    "os._exit": ("sys.stdout.flush(); os._exit(4)", 4),
    "pending operation": ("hvd.allreduce_async(torch.ones(1 << 20))", 0),
}
INIT_WITHOUT_TORCH = """
import os, sys, time
from horovod._common.native import core
from horovod.common.basics import HorovodBasics
hvd = HorovodBasics()
hvd.init()
"""
BARRIER = "core.enqueue((core.OP_BARRIER, 'barrier.x', -1, ()), (0, 0, (), 0, -1), (0, 1.0, 1.0, 0), None)"
SOON_S = 2.0


@pytest.fixture(scope="module")
def torch_exit_s() -> float:
    """How long the interpreter takes to end after importing torch: on a busy machine, up to seconds."""
    program = "import time, torch; print(torch.ones(3).sum().item(), time.time(), flush=True)"
    job = run_to_end([sys.executable, "-c", program])
    return time.time() - float(job.out.split()[1])


def write(folder: Path, body: str) -> str:
    script = folder / "script.py"
    script.write_text(INIT + textwrap.dedent(body) + "\n")
    return str(script)


@pytest.mark.parametrize("end", ENDS)
def test_a_single_process_ends_cleanly(end: str, tmp_path: Path, torch_exit_s: float) -> None:
    body, code = ENDS[end]
    job = run_to_end(
        [sys.executable, write(tmp_path, "print('last', time.time(), flush=True)\n" + body)], deadline_s=60
    )
    ended = time.time()
    assert job.code == code, job.text
    assert ended - float(job.out.split()[1]) < SOON_S + torch_exit_s
    assert ("Traceback" in job.err) == (end == "exception"), job.text


@pytest.mark.parametrize("end", [e for e in ENDS if e != "pending operation"])
def test_two_ranks_end_cleanly(end: str, horovodrun: Any, tmp_path: Path) -> None:
    body, code = ENDS[end]
    job = horovodrun(2, write(tmp_path, "hvd.barrier()\nprint('done', flush=True)\n" + body), deadline_s=60)
    assert job.code == code, job.text
    assert job.out.count("done") == 2
    assert "terminate called" not in job.err
    assert "Segmentation" not in job.err


def test_ctrl_c_interrupts_a_wait(horovodrun: Any, tmp_path: Path) -> None:
    """Rank 0 waits for an operation that rank 1 never submits, and is interrupted."""
    script = write(
        tmp_path,
        """
        if hvd.rank() == 0:
            import signal, threading
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            begin = time.monotonic()
            try:
                hvd.allreduce(torch.ones(1), name="only here")
            except KeyboardInterrupt:
                print(f"interrupted {time.monotonic() - begin < 2.0}", flush=True)
            hvd.allreduce(torch.ones(1), name="still works")
        else:
            hvd.allreduce(torch.ones(1), name="still works")
        """,
    )
    job = horovodrun(2, script, deadline_s=60)
    assert job.code == 0, job.text
    assert "interrupted True" in job.out


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
        sys.exit(3)
"""


@pytest.mark.parametrize("slow", [0.0, 0.8])
def test_an_uncaught_exception_is_named_by_the_others_and_blamed(slow: float, horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, write(tmp_path, RAISING.format(slow=slow)), deadline_s=60)
    assert job.code == 1, job.text
    raised = re.search(r"raised ([\d.]+)", job.out)
    noticed = re.search(r"noticed ([\d.]+) rank 1 is lost: uncaught exception KeyError: 'oops'", job.out)
    assert raised, job.text
    assert noticed, job.text
    assert float(noticed[1]) - float(raised[1]) < 1.0
    assert "KeyError: 'oops'" in job.err
    # A rank that takes longer to end than the survivors' grace, as on a busy machine, is ended before it has a code.
    how = "(exited with code 1|failed with an uncaught exception)"
    assert re.search(rf"the job failed: rank 1 on host localhost \(pid \d+\) {how} first", job.err), job.text
    assert "After that, rank 0 exited with code 3" in job.err, job.text


# Rank 1 leaves the job in the middle and takes its time to end; rank 0 fails because of it and exits sooner.
LEAVING = """
    import atexit
    if hvd.rank() == 1:
        atexit._clear()  # what runs last: the wait below; before it Horovod's own
        atexit.register(lambda: time.sleep(0.6))
        atexit.register(hvd.mpi_ops._basics._shutdown_at_exit)
        sys.exit({code})
    try:
        hvd.allreduce(torch.ones(1), name="alone")
    except hvd.HorovodInternalError as error:
        sys.exit(3)
"""


def test_a_rank_that_exits_with_an_error_is_blamed_though_others_end_sooner(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, write(tmp_path, LEAVING.format(code=7)), deadline_s=60)
    assert job.code == 7, job.text
    assert re.search(r"the job failed: rank 1 on host localhost \(pid \d+\) exited with code 7 first", job.err), (
        job.text
    )
    assert "After that, rank 0 exited with code 3" in job.err, job.text


def test_a_rank_that_leaves_without_an_error_is_not_blamed(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, write(tmp_path, LEAVING.format(code=0)), deadline_s=60)
    assert job.code == 3, job.text
    assert re.search(r"the job failed: rank 0 on host localhost \(pid \d+\) exited with code 3", job.err), job.text


def test_an_exception_beside_a_thread_that_waits_is_no_hang(horovodrun: Any, tmp_path: Path) -> None:
    """The interpreter joins threads before it runs anything at exit: the others have to learn of it before."""
    script = write(
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
    job = horovodrun(2, script, deadline_s=60)
    assert job.code == 1, job.text
    assert "HorovodInternalError: rank 1 is lost: uncaught exception KeyError: 'oops'" in job.err, job.text
    assert "the job failed: rank 1" in job.err, job.text


def test_an_exception_in_the_middle_of_an_epoch(horovodrun: Any, tmp_path: Path) -> None:
    """Rank 0 fails between two steps of training; the other ranks' error comes out of backward or step."""
    script = write(
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
    job = horovodrun(3, script, deadline_s=60)
    assert job.code == 1, job.text
    named = re.findall(r"HorovodInternalError: .*rank 0 is lost: uncaught exception ValueError: bad batch", job.err)
    assert len(named) == 2, job.text
    assert "the job failed: rank 0" in job.err, job.text


def test_an_exit_in_the_middle_of_an_epoch(horovodrun: Any, tmp_path: Path) -> None:
    """A rank that leaves early ends the session: an error for the others, no hang."""
    script = write(
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
    job = horovodrun(2, script, deadline_s=60)
    assert job.code == 1, job.text
    assert "rank 1 called shutdown() or ended" in job.err, job.text
    assert 'allreduce "allreduce.gradient" was waiting for it' in job.err, job.text
    assert re.search(r"the job failed: rank 0 .* first, after rank 1 had left the job", job.err), job.text


def test_a_killed_rank_is_an_error_for_the_others(horovodrun: Any, tmp_path: Path) -> None:
    script = write(
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
            print(f"noticed within a second: {time.monotonic() - begin < 1.0}; {error}", flush=True)
        """,
    )
    job = horovodrun(2, script, deadline_s=60)
    assert job.code == 128 + signal.SIGKILL, job.text
    assert "noticed within a second: True" in job.out, job.text


def test_init_needs_a_sound_environment() -> None:
    job = run_to_end(
        [sys.executable, "-c", INIT],
        env={"HOROVOD_RANK": "two", "HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "x"},
    )
    assert job.code == 1
    assert "ValueError" in job.err
    assert "HOROVOD_" in job.err


def test_a_fork_after_init_leaves_parent_and_child_alive() -> None:
    program = INIT + textwrap.dedent(
        """
        child = os.fork()
        if child == 0:
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        print(hvd.allreduce(torch.ones(1)).item(), hvd.is_initialized())
        """
    )
    job = run_to_end([sys.executable, "-c", program], deadline_s=60)
    assert job.out.split() == ["1.0", "True"], job.text


@pytest.mark.parametrize("processes", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("end", ENDS)
def test_many_processes_end_cleanly(end: str, processes: int, tmp_path: Path) -> None:
    """Without torch, whose import would take most of the time."""
    body, code = ENDS[end]
    body = body.replace("hvd.allreduce_async(torch.ones(1 << 20))", BARRIER)
    script = tmp_path / "script.py"
    script.write_text(f"{INIT_WITHOUT_TORCH}print('last', time.time(), flush=True)\n{body}\n")
    for _ in range(processes):
        job = run_to_end([sys.executable, str(script)], deadline_s=60)
        assert job.code == code, job.text
        assert time.time() - float(job.out.split()[1]) < SOON_S


@pytest.mark.parametrize("sessions", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_sessions_in_one_process_leave_nothing(sessions: int) -> None:
    program = (
        "import os, torch, horovod.torch as hvd\n"
        f"for i in range({sessions}):\n"
        "    hvd.init(); assert hvd.allreduce(torch.ones(1)).item() == 1; hvd.shutdown()\n"
        "    if i == 10: fds, threads = len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))\n"
        "assert len(os.listdir('/proc/self/fd')) <= fds, os.listdir('/proc/self/fd')\n"
        "assert len(os.listdir('/proc/self/task')) <= threads\n"
        "print('left nothing')\n"
    )
    job = run_to_end([sys.executable, "-c", program], deadline_s=300)
    assert job.out.strip() == "left nothing", job.text


def test_a_process_without_init_is_left_alone() -> None:
    job = run_to_end([sys.executable, "-c", "import horovod.torch as hvd; print(hvd.is_initialized())"])
    assert job.out.strip() == "False", job.text


def test_signals_reach_python_and_not_our_threads() -> None:
    """SIGTERM ends a process that waits in Python, at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", INIT + "print('ready', flush=True)\ntime.sleep(60)"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=5) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_children_of_torch_multiprocessing_may_come_and_go(horovodrun: Any, tmp_path: Path) -> None:
    """Forked and spawned, sharing tensors; the session of their parent does not notice."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            import torch.multiprocessing as mp


            def fill(shared, value):
                shared.fill_(value)


            if __name__ == "__main__":
                import horovod.torch as hvd

                hvd.init()
                shared = torch.zeros(4).share_memory_()
                for method, value in (("fork", 1.0), ("spawn", 2.0)):
                    child = mp.get_context(method).Process(target=fill, args=(shared, value))
                    child.start()
                    during = hvd.allreduce(torch.ones(8), op=hvd.Sum, name=f"during {method}")
                    child.join()
                    assert child.exitcode == 0
                    assert during.sum().item() == 8 * hvd.size()
                    assert torch.equal(hvd.allreduce(shared), torch.full((4,), value))
                torch.set_num_threads(2)
                print("done", hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
            """
        )
    )
    job = horovodrun(2, str(script), deadline_s=120)
    assert job.code == 0, job.text
    assert job.out.count("done 2.0") == 2, job.text


@pytest.mark.slow
def test_a_hundred_sessions_against_one_launcher(horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time, torch, horovod.torch as hvd\n"
        "begin = time.monotonic()\n"
        "for i in range(100):\n"
        "    hvd.init(); assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2; hvd.shutdown()\n"
        "print('seconds', time.monotonic() - begin)\n"
    )
    job = horovodrun(2, str(script), deadline_s=120)
    assert job.code == 0, job.text
    assert all(float(seconds) < 10 for seconds in re.findall(r"seconds ([\d.]+)", job.out)), job.out
