"""The caller's end of horovod.run(): horovodrun as a child process, its output, and what comes back."""

from __future__ import annotations

import codecs
import contextlib
import importlib.metadata
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO

from horovod._function_job import _message
from horovod._function_job._results import Received, receive, results_of

Stream = TextIO | io.TextIOBase

# As `python -m horovod.runner.run_task`, which would put the current folder before all others: a file of the name of a
# module that this imports would run in its stead.
_CALL = "import sys; sys.path[:] = [p for p in sys.path if p]; from horovod.runner.run_task import main; main()"


# Results end, at either end, when the last process that holds the socket has ended: not with a child that the caller
# forks meanwhile.
_open_results: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for results in list(_open_results):
        if results.fileno() >= 0:
            os.close(results.detach())  # close() would wait for the file that reads from it
    _open_results.clear()


os.register_at_fork(after_in_child=_close_in_child)


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
        received: Future[Received] = Future()
        work: list[threading.Thread] = [
            threading.Thread(target=_keep, args=(received, receive, ours, caller), name="hvd-results"),
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
    return results_of(received.result(), code)


def _keep(result: Future[Any], call: Callable[..., Any], *args: Any) -> None:
    """What `call` returns or raises is that of `result`."""
    try:
        result.set_result(call(*args))
    except BaseException as error:
        result.set_exception(error)
