"""The caller's end of horovod.run(): horovodrun as a child process, its output, and what comes back."""

from __future__ import annotations

import codecs
import contextlib
import importlib.metadata
import io
import os
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO

from horovod._function_job import _message

Stream = TextIO | io.TextIOBase

_PIECE = struct.Struct("<iII")  # slot, incarnation, size: launcher/job/result_channel.h
_FAILED, _FINISHED, _REFUSED = -1, -2, -3  # slots of the job's own pieces
_FAILURE = struct.Struct("<iiIi")  # rank or -1, slot, incarnation, exit code
_PROCESS = struct.Struct("<iI")  # slot, incarnation
# As `python -m horovod.runner.run_task`, which would put the current folder before all others: a file of the name of a
# module that this imports would run in its stead.
_CALL = "import sys; sys.path[:] = [p for p in sys.path if p]; from horovod.runner.run_task import main; main()"


class RankTraceback(Exception):
    """The traceback of an exception on a rank, which cannot travel as such: the cause of the exception that can."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


# Results end, at either end, when the last process that holds the socket has ended: not with a child that the caller
# forks meanwhile.
_open_results: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for results in list(_open_results):
        if results.fileno() >= 0:
            os.close(results.detach())  # close() would wait for the file that reads from it
    _open_results.clear()


os.register_at_fork(after_in_child=_close_in_child)


@dataclass
class _JobFailure:
    rank: int  # -1: a host
    process: tuple[int, int]
    exit_code: int
    what: str
    circumstance: str = ""  # what another rank has to do with it
    name: str = ""  # of the process


@dataclass
class _Received:
    caller: str  # for messages: the function that the user has called
    reports: dict[tuple[int, int], bytearray] = field(default_factory=dict)  # by process, with the size before each
    finished: list[tuple[int, int]] = field(default_factory=list)  # in rank order
    failure: _JobFailure | None = None
    refusal: str | None = None  # why nothing was started: what is asked for is wrong


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _candidates() -> Iterator[Path]:
    yield Path(sys.executable).parent / "horovodrun"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for entry in importlib.metadata.files("horovod-gloo") or ():
            if entry.name == "horovodrun":
                yield Path(str(entry.locate()))
    yield Path(__file__).resolve().parents[2] / "bin" / "horovodrun"  # pip install --target
    on_path = shutil.which("horovodrun")
    if on_path is not None:
        yield Path(on_path)


def find_launcher() -> str:
    """The horovodrun that was installed with this package. FileNotFoundError if there is none."""
    for path in _candidates():
        if _is_program(path):
            return str(path.resolve())
    raise FileNotFoundError(
        f"horovod.run: horovodrun is neither beside {sys.executable}, nor among the package's files, nor on PATH"
    )


def _receive(results: socket.socket, caller: str) -> _Received:
    """What horovodrun passes on, until it has ended."""
    received = _Received(caller)
    with results.makefile("rb") as stream:
        while len(head := stream.read(_PIECE.size)) == _PIECE.size:
            slot, incarnation, size = _PIECE.unpack(head)
            payload = stream.read(size)
            if len(payload) < size:  # it was killed
                break
            if slot == _FAILED:
                rank, *process, code = _FAILURE.unpack_from(payload)
                what = payload[_FAILURE.size :].decode(errors="replace")
                # Why a host failed may have several lines of its own.
                words = what.split("\n") if rank >= 0 else [what]
                received.failure = _JobFailure(rank, (process[0], process[1]), code, *words)
            elif slot == _REFUSED:
                received.refusal = payload.decode(errors="replace")
            elif slot == _FINISHED:
                received.finished = list(_PROCESS.iter_unpack(payload))
            else:
                received.reports.setdefault((slot, incarnation), bytearray()).extend(payload)
    return received


def _copy_text(source: BinaryIO, target: Stream) -> None:
    """To the end, also when the target takes no more: the job must not wait for a reader."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while chunk := os.read(source.fileno(), 65536):
        with contextlib.suppress(Exception):
            _write_text(target, decoder.decode(chunk))


def _write_text(target: Stream, text: str) -> None:
    try:
        target.write(text)
    except UnicodeEncodeError as error:
        encoding = getattr(target, "encoding", None) or error.encoding
        target.write(text.encode(encoding, "replace").decode(encoding))
    target.flush()


def _feed(stdin: IO[bytes], payload: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # horovodrun says why
        stdin.write(_message.with_size(payload))
    with contextlib.suppress(BrokenPipeError):
        stdin.close()


def _wait(job: subprocess.Popen[bytes], begin: Callable[[], None] = lambda: None) -> int:
    """Calls `begin`, and returns the exit code. Ctrl-C reaches the ranks through horovodrun, which leads a group of its
    own, as it would in a terminal; any other exception, such as that of a signal handler, or of `begin`, ends them. It
    is raised once the job has ended."""
    first: BaseException | None = None
    has_begun = False
    while True:
        try:
            if not has_begun:
                has_begun = True
                begin()
            if first is not None:
                job.send_signal(signal.SIGINT if isinstance(first, KeyboardInterrupt) else signal.SIGTERM)
            code = job.wait()
        except BaseException as error:
            first = first or error
        else:
            break
    if first is not None:
        raise first
    return code


def _report_of(received: _Received, process: tuple[int, int]) -> _message.Report | None:
    """What the process reports of its function; None if it has not, or not to the end."""
    payload = bytes(received.reports.get(process, b""))
    size = int.from_bytes(payload[: _message.SIZE_BYTES], "little")
    if not payload or len(payload) != _message.SIZE_BYTES + size:
        return None
    return _message.load_report(payload[_message.SIZE_BYTES :])


def _report_of_rank(received: _Received, rank: int) -> _message.Report | None:
    try:
        return _report_of(received, received.finished[rank])
    except Exception as error:
        raise RuntimeError(
            f"{received.caller}: what rank {rank} has returned cannot be made again from its pickle: "
            f"{type(error).__name__}: {error}"
        ) from error


def _failure_of(received: _Received, process: tuple[int, int]) -> _message.Failure | None:
    try:
        report = _report_of(received, process)
    except Exception:
        return None  # it has returned what cannot be made again here, and has failed after that
    return report.failure if report is not None else None


def _exception_of(failure: _message.Failure) -> BaseException:
    """The rank's exception, or what can be said of it."""
    words = f"{failure.kind}: {failure.text}"
    if failure.error is None:
        return RuntimeError(words)
    try:
        error = pickle.loads(failure.error)
    except Exception as why:
        return RuntimeError(f"{words} (it cannot be made again here: {type(why).__name__}: {why})")
    return error if isinstance(error, BaseException) else RuntimeError(words)


def _error_of(received: _Received, exit_code: int) -> RuntimeError | ValueError:
    """What the caller gets when the job has failed; its cause is the exception on the rank that failed first."""
    if received.refusal is not None:
        return ValueError(f"{received.caller}: {received.refusal}")
    first = received.failure
    if first is None or first.rank < 0:
        reason = "horovodrun wrote why to standard error" if first is None else first.what
        return RuntimeError(f"{received.caller}: the job failed with exit code {exit_code}: {reason}")
    failure = _failure_of(received, first.process)
    what = first.what if failure is None else f"raised {failure.kind}: {failure.text}"
    error = RuntimeError(
        f"{received.caller}: rank {first.rank} {what}{first.circumstance}\n"
        f"Process name: {first.name}\nExit code: {first.exit_code}"
    )
    if failure is not None:
        error.__cause__ = _exception_of(failure)
        error.__cause__.__cause__ = RankTraceback(failure.trace)
    return error


def command_of(executable: str) -> list[str]:
    """What a rank is to run, for run_function_job()."""
    return [executable, "-c", _CALL]


def run_function_job(
    launcher_args: Sequence[str],
    command: Sequence[str],
    payload: bytes,
    *,
    caller: str = "horovod.run",
    stdout: Stream | None = None,
    stderr: Stream | None = None,
    on_start: Callable[[subprocess.Popen[bytes]], None] | None = None,
    pass_fds: Sequence[int] = (),
) -> list[Any]:
    """The results of all ranks, of an elastic job's last round, in rank order; `payload`: see _message.dump_task.

    What ranks and horovodrun write goes to `stdout` and `stderr`, else to those of this process. `on_start` gets
    horovodrun's process, before anything of it is read; it inherits `pass_fds`. RuntimeError if the job fails,
    ValueError if horovodrun refuses its arguments; their text begins with `caller`.
    """
    ours, theirs = socket.socketpair()
    _open_results.update((ours, theirs))
    # A notebook shows what is written to sys.stdout, and not what a child writes to descriptor 1.
    streams = [(stdout or sys.stdout, sys.__stdout__), (stderr or sys.stderr, sys.__stderr__)]
    shown = [None if stream is real else subprocess.PIPE for stream, real in streams]
    # Where results go comes first: what follows may be refused.
    argv = [find_launcher(), "--results-fd", str(theirs.fileno()), "--stdin", "all", *launcher_args]
    with ours:
        with theirs:
            job = subprocess.Popen(
                [*argv, *command],
                stdin=subprocess.PIPE,
                stdout=shown[0],
                stderr=shown[1],
                pass_fds=[theirs.fileno(), *pass_fds],
                start_new_session=True,
            )
        received: Future[_Received] = Future()
        work: list[threading.Thread] = [
            threading.Thread(target=_keep, args=(received, _receive, ours, caller), name="hvd-results"),
            threading.Thread(target=_feed, args=(job.stdin, payload), name="hvd-task"),
        ]
        for source, (target, _) in zip((job.stdout, job.stderr), streams, strict=True):
            if source is not None:
                work.append(threading.Thread(target=_copy_text, args=(source, target), name="hvd-output"))

        def begin() -> None:
            if on_start is not None:
                on_start(job)
            for thread in work:
                thread.start()

        try:
            code = _wait(job, begin)
        finally:
            for thread in work:
                if thread.ident is not None:  # else it was not started
                    thread.join()
    return _results(received.result(), code)


def _keep(result: Future[Any], call: Callable[..., Any], *args: Any) -> None:
    """What `call` returns or raises is that of `result`."""
    try:
        result.set_result(call(*args))
    except BaseException as error:
        result.set_exception(error)


def _results(received: _Received, code: int) -> list[Any]:
    if code != 0:
        raise _error_of(received, code)
    reports = [_report_of_rank(received, rank) for rank in range(len(received.finished))]
    missing = [str(rank) for rank, report in enumerate(reports) if report is None]
    if missing:
        raise RuntimeError(
            f"{received.caller}: {'rank' if len(missing) == 1 else 'ranks'} {', '.join(missing)} ended with exit code "
            "0 without returning anything: "
            "did the function call os._exit() or execv()?"
        )
    return [report.value for report in reports if report is not None]
