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

from jobs import INIT_TORCH, SUPPORT, assert_soon, run_to_end, torch_script

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


def seconds_to_end(command: list[str], code: int) -> float:
    """How long a process takes to end after it has said when it was at its last line."""
    job = run_to_end(command)
    took = time.time() - float(job.out.split()[1])
    assert job.code == code, job.text
    assert ("Traceback" in job.err) == (code == ENDS["exception"][1]), job.text
    return took


@pytest.mark.parametrize("end", ["end of the script", "pending operation"])
def test_a_single_process_ends_cleanly(end: str, tmp_path: Path, torch_exit_s: float) -> None:
    """And soon. Each other way is tried without torch, and with torch on two ranks."""
    body, code = ENDS[end]
    script = torch_script(tmp_path, "print('last', time.time(), flush=True)\n" + body)
    assert_soon(lambda: seconds_to_end([sys.executable, script], code), SOON_S + torch_exit_s)


def test_daemon_threads_that_wait_do_not_spoil_the_end(horovodrun: Any, tmp_path: Path) -> None:
    script = """
    import threading

    def wait(handle):
        try:
            hvd.synchronize(handle)
        except hvd.HorovodInternalError:
            pass

    handles = [hvd.allreduce_async(torch.ones(4), name=f"of rank {hvd.rank()}, {i}") for i in range(30)]
    for handle in handles:
        threading.Thread(target=wait, args=(handle,), daemon=True).start()
    """
    job = horovodrun(2, torch_script(tmp_path, textwrap.dedent(script)))
    assert (job.code, job.err.count("terminate called")) == (0, 0), job.text


def test_a_daemon_thread_that_seals_an_object_does_not_spoil_the_end(tmp_path: Path) -> None:
    """The process does not go while the thread is in the core, where Python would end it by an abort."""
    script = """
    import threading

    class Last:
        def __del__(self, sleep=time.sleep):
            sleep(1)  # Python ends meanwhile

    sys.last_of_all = Last()
    begins = threading.Event()

    def seal():
        payload = b"x" * (80 << 20)
        begins.set()
        core.seal_payload("purpose", payload)

    threading.Thread(target=seal, daemon=True).start()
    begins.wait()
    """
    program = INIT_WITHOUT_TORCH + textwrap.dedent(script)
    job = run_to_end([sys.executable, "-c", program])
    assert (job.code, job.err) == (0, ""), job.text


def test_adasum_without_memory_is_an_error(horovodrun: Any, tmp_path: Path) -> None:
    """It needs as much as the tensor has."""
    script = """
    import resource

    layer = torch.ones(1 << 24)
    hvd.allreduce_(torch.ones(1000), op=hvd.Adasum, name="small")
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
    try:
        hvd.allreduce_(layer, op=hvd.Adasum, name="layer")
    except hvd.HorovodInternalError as error:
        print("raised", error, flush=True)
    """
    job = horovodrun(2, torch_script(tmp_path, textwrap.dedent(script)))
    assert job.out.count("raised") == 2, job.text
    assert "adasum of 'allreduce.layer': adasum: Cannot allocate memory" in job.out


@pytest.mark.parametrize("end", [e for e in ENDS if e != "pending operation"])
def test_two_ranks_end_cleanly(end: str, horovodrun: Any, tmp_path: Path) -> None:
    body, code = ENDS[end]
    job = horovodrun(2, torch_script(tmp_path, "hvd.barrier()\nprint('done', flush=True)\n" + body))
    assert job.code == code, job.text
    assert job.out.count("done") == 2
    assert "terminate called" not in job.err
    assert "Segmentation" not in job.err


def test_ctrl_c_interrupts_a_wait(horovodrun: Any, tmp_path: Path) -> None:
    """Rank 0 waits for an operation that rank 1 never submits, and is interrupted."""
    script = torch_script(
        tmp_path,
        """
        if hvd.rank() == 0:
            import signal
            from when_waiting import when_waiting
            pressed = []

            def press():
                pressed.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            when_waiting(press)
            try:
                hvd.allreduce(torch.ones(1), name="only here")
            except KeyboardInterrupt:
                print("interrupted after", time.monotonic() - pressed[0], flush=True)
            hvd.allreduce(torch.ones(1), name="still works")
        else:
            hvd.allreduce(torch.ones(1), name="still works")
        """,
    )

    def seconds() -> float:
        job = horovodrun(2, script, env=SUPPORT)
        assert job.code == 0, job.text
        interrupted = re.search(r"interrupted after ([\d.e-]+)", job.out)
        assert interrupted, job.text
        return float(interrupted[1])

    assert_soon(seconds, SOON_S)


def test_init_needs_a_sound_environment() -> None:
    job = run_to_end(
        [sys.executable, "-c", INIT_TORCH],
        env={"HOROVOD_RANK": "two", "HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "x"},
    )
    assert job.code == 1
    assert "ValueError" in job.err
    assert "HOROVOD_" in job.err


def test_a_fork_after_init_leaves_parent_and_child_alive() -> None:
    program = INIT_TORCH + textwrap.dedent(
        """
        child = os.fork()
        if child == 0:
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        print(hvd.allreduce(torch.ones(1)).item(), hvd.is_initialized())
        """
    )
    job = run_to_end([sys.executable, "-c", program])
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
        assert_soon(lambda: seconds_to_end([sys.executable, str(script)], code), SOON_S)


def test_a_process_without_init_is_left_alone() -> None:
    job = run_to_end([sys.executable, "-c", "import horovod.torch as hvd; print(hvd.is_initialized())"])
    assert job.out.strip() == "False", job.text


def test_signals_reach_python_and_not_our_threads() -> None:
    """SIGTERM ends a process that waits in Python, at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", INIT_TORCH + "print('ready', flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=50) == -signal.SIGTERM
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
    job = horovodrun(2, str(script))
    assert job.code == 0, job.text
    assert job.out.count("done 2.0") == 2, job.text
