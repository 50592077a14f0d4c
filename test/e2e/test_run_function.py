"""horovod.run(): a function on ranks, its results, and how it fails."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod
from horovod._function_job import _caller, _message, _results


class Unpicklable(Exception):
    """It pickles, and cannot be made again from that."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def allreduce_one() -> None:
    from horovod._common.native import core

    value = (ctypes.c_float * 1)(1.0)
    address = ctypes.addressof(value)
    tensor = (address, address, [1], core.DTYPE_FLOAT32, -1)
    core.enqueue((core.OP_ALLREDUCE, "x", -1, ()), tensor, (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()


def test_results_come_in_rank_order_however_large_and_output_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    factor = 3

    def work(base: int, *, size: int) -> tuple[int, Any, str]:
        from horovod._common.native import core

        core.init()
        print("working", flush=True)
        rank = core.rank()
        core.shutdown()
        return base + factor * rank, np.full(size, rank, np.uint8), sys.stdin.read()

    results = horovod.run(work, (10,), {"size": 3_000_000}, num_proc=2)
    assert [(value, array.sum(), text) for value, array, text in results] == [(10, 0, ""), (13, 3_000_000, "")]
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0]<stdout>:working", "[1]<stdout>:working"]


def test_network_interfaces_are_a_list_or_a_text_with_commas() -> None:
    for interfaces in (["lo"], "lo", "lo,eth9"):
        assert horovod.run(lambda: os.environ["HOROVOD_RANK"], network_interfaces=interfaces) == ["0"]


def test_the_exception_of_the_first_rank_that_failed_is_the_cause(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        from horovod._common.native import core

        core.init()
        if core.rank() == 1:
            raise FileNotFoundError(2, "no such data", "train.csv")
        allreduce_one()

    with pytest.raises(
        RuntimeError, match=r"rank 1 raised FileNotFoundError.*\nProcess name: 1\nExit code: 1"
    ) as caught:
        horovod.run(work, num_proc=2)
    cause = caught.value.__cause__
    assert isinstance(cause, FileNotFoundError)
    assert cause.filename == "train.csv"
    shown = "".join(traceback.format_exception(caught.value))
    assert "in work" in shown
    assert 'raise FileNotFoundError(2, "no such data", "train.csv")' in shown
    assert "[1]<stderr>:FileNotFoundError" in capfd.readouterr().err


def test_what_cannot_travel_is_said_in_words() -> None:
    def bad_exception() -> None:
        raise Unpicklable(1, 2)

    with pytest.raises(RuntimeError, match=r"rank 0 raised .*Unpicklable: 1 and 2") as caught:
        horovod.run(bad_exception)
    assert type(caught.value.__cause__) is RuntimeError

    unpicklable = "rank 0 raised TypeError: the function's result, of type lock, cannot be pickled: cannot pickle"
    with pytest.raises(RuntimeError, match=unpicklable):
        horovod.run(lambda: __import__("_thread").allocate_lock())
    unloadable = r"what rank 0 has returned cannot be made again from its pickle: TypeError: .*'two'"
    with pytest.raises(RuntimeError, match=unloadable):
        horovod.run(lambda: Unpicklable(1, 2))
    with pytest.raises(RuntimeError, match=r"rank 0 exited with code 3\nProcess name: 0\nExit code: 3"):
        horovod.run(lambda: os._exit(3))
    with pytest.raises(RuntimeError, match=r"ranks 0, 1 ended with exit code 0 without returning"):
        horovod.run(lambda: os._exit(0), num_proc=2)
    assert horovod.run(lambda: sys.exit(0)) == [None]


def test_what_horovodrun_refuses_is_a_value_error_with_its_words(tmp_path: Path) -> None:
    refused = {
        "hosts": ("localhost:1", "the job needs 2 slots but the hosts have 1"),
        "network_interfaces": ("nonexist", "this machine has no interface 'nonexist'"),
        "ssh_port": (0, "--ssh-port: '0' is not an integer from 1"),
    }
    for name, (value, words) in refused.items():
        with pytest.raises(ValueError, match=rf"^horovod\.run: .*{words}"):
            horovod.run(print, num_proc=2, **{name: value})
    # Its arguments are right, and what they ask for fails.
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match=r"the job failed with exit code 1: --output-filename: cannot make"):
        horovod.run(print, output_filename=str(tmp_path / "file" / "in"))
    with pytest.raises(RuntimeError, match=r"the job failed with exit code 1: --host-discovery-script .*code 127"):
        horovod.run(print, host_discovery_script=str(tmp_path / "none"))


def test_a_rank_that_ended_well_while_others_needed_it_is_named() -> None:
    def work() -> None:
        from horovod._common.native import core

        core.init()
        if core.rank() == 1:
            os._exit(0)
        allreduce_one()

    named = r"(because rank 1 on host localhost had|and rank 1 on host localhost, which it calls lost, has) ended"
    with pytest.raises(RuntimeError, match=rf"rank 0 raised .*, {named} with exit code 0.*\nProcess name: 0\n"):
        horovod.run(work, num_proc=2)


def test_an_exception_of_a_module_that_the_caller_lacks_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "of_ranks_alone.py").write_text("class OddError(Exception):\n    pass\n")

    def odd_error() -> Exception:
        sys.path.insert(0, str(tmp_path))
        error: Exception = importlib.import_module("of_ranks_alone").OddError("strange")
        return error

    def work() -> None:
        raise odd_error()

    said = r"rank 0 raised of_ranks_alone\.OddError: strange\nProcess name: 0\nExit code: 1"
    with pytest.raises(RuntimeError, match=said) as caught:
        horovod.run(work)
    cause = caught.value.__cause__
    assert type(cause) is RuntimeError
    assert "strange (it cannot be made again here: ModuleNotFoundError: No module named 'of_ranks_alone')" in str(cause)
    assert "in work" in str(cause.__cause__)

    def fails_when_it_has_returned() -> Exception:
        atexit.register(lambda: os._exit(3))
        return odd_error()

    with pytest.raises(RuntimeError, match=r"rank 0 exited with code 3\nProcess name: 0\nExit code: 3"):
        horovod.run(fails_when_it_has_returned)


SCRIPT = """
import signal
import horovod, neighbour
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests ignores
def work():
    return neighbour.answer()
def wait():
    try:
        print("up", flush=True)
        signal.pause()
    finally:
        print("cleaned", flush=True)
print(horovod.run(work, num_proc=2))
horovod.run(wait, num_proc=2)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_scripts_neighbours_are_found_and_no_rank_outlives_the_caller(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "neighbour.py").write_text("def answer():\n    return 42\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    # Nothing is loaded from the current folder, whose files may be anybody's.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("cloudpickle.py", "pickle.py"):
        (elsewhere / name).write_text("raise RuntimeError('planted')\n")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=elsewhere,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as caller:
        assert caller.stdout is not None
        assert caller.stderr is not None
        assert caller.stdout.readline() == "[42, 42]\n"
        assert sorted(caller.stdout.readline() for _ in range(2)) == ["[0]<stdout>:up\n", "[1]<stdout>:up\n"]
        caller.send_signal(end)
        # They end when the last process that holds them does; the launcher's own deadlines bound that.
        out, err = caller.stdout.read(), caller.stderr.read()
    if end == signal.SIGINT:
        assert sorted(out.splitlines()) == ["[0]<stdout>:cleaned", "[1]<stdout>:cleaned"]
        assert err.rstrip().endswith("KeyboardInterrupt")
    else:
        assert "waits for its results is gone" in err


def test_an_exception_of_a_signal_handler_ends_the_job_first() -> None:
    def expire(*_: Any) -> None:
        raise TimeoutError("time is up")

    class Awaited(subprocess.Popen[bytes]):
        is_new = True

        def wait(self, timeout: float | None = None) -> int:
            if self.is_new:
                self.is_new = False
                signal.raise_signal(signal.SIGALRM)
            return super().wait(timeout)

    before = signal.signal(signal.SIGALRM, expire)
    script = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: exit(3))\nprint(flush=True)\nsignal.pause()"
    try:
        with Awaited([sys.executable, "-c", script], stdout=subprocess.PIPE) as job:
            assert job.stdout is not None
            job.stdout.readline()
            with pytest.raises(TimeoutError, match="time is up"):
                _caller._wait(job)
            assert job.returncode == 3
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_call_that_fails_while_it_begins_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            if self.name == "hvd-task":
                raise RuntimeError("can't start new thread")
            super().start()

    def interrupt(job: subprocess.Popen[bytes]) -> None:
        jobs.append(job)
        raise KeyboardInterrupt

    jobs: list[subprocess.Popen[bytes]] = []
    arguments = (["-np", "1"], _caller.command_of(sys.executable), _message.dump_task(signal.pause, (), {}))
    with pytest.raises(KeyboardInterrupt):
        _caller.run_function_job(*arguments, on_start=interrupt)
    monkeypatch.setattr(_caller.threading, "Thread", Refused)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        _caller.run_function_job(*arguments, on_start=jobs.append)
    assert [job.returncode is None for job in jobs] == [False, False]


def test_what_goes_wrong_with_results_here_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(results: socket.socket, _caller: str) -> None:
        raise MemoryError("no room for results")

    monkeypatch.setattr(_caller, "receive", receive)
    with pytest.raises(MemoryError, match="no room for results"):
        horovod.run(lambda: 1)


def test_output_is_read_to_its_end_whatever_takes_it() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii")
    closed = io.StringIO()
    closed.close()
    for target in (ascii_only, closed):
        read_end, write_end = os.pipe()
        os.write(write_end, "grün\n".encode())
        os.close(write_end)
        with open(read_end, "rb") as source:
            _caller._copy_text(source, target)
            assert source.read() == b""
    ascii_only.seek(0)
    assert ascii_only.read() == "gr?n\n"


def test_a_forked_child_does_not_hold_the_results() -> None:
    ours, theirs = socket.socketpair()
    _caller._open_results.add(ours)
    theirs.settimeout(10.0)
    waits, goes_on = os.pipe()
    with theirs:
        with ours, ours.makefile("rb"):  # as the thread that receives
            child = os.fork()
            if child == 0:
                os.close(goes_on)
                os.read(waits, 1)
                os._exit(0)
        assert theirs.recv(1) == b""  # while the child lives
    os.close(goes_on)
    os.waitpid(child, 0)
    os.close(waits)


@pytest.mark.parametrize("slot", [_results._FAILED, _results._FINISHED])
def test_a_piece_that_a_killed_launcher_began_is_left(slot: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(_results._PIECE.pack(0, 7, 2) + b"ok" + _results._PIECE.pack(slot, 0, 100) + b"cut")
        received = _results.receive(ours, "test")
    assert received.reports == {(0, 7): b"ok"}
    assert received.failure is None
    assert not received.finished
