"""What comes back from the ranks of a function job, through horovodrun: their results, or the error for the caller."""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from horovod._function_job import _message

__all__ = ["Received", "receive", "results_of"]

_PIECE = struct.Struct("<iII")  # slot, incarnation, size: launcher/job/result_channel.h
_FAILED, _FINISHED, _REFUSED = -1, -2, -3  # slots of the job's own pieces
_FAILURE = struct.Struct("<iiIi")  # rank or -1, slot, incarnation, exit code
_PROCESS = struct.Struct("<iI")  # slot, incarnation


class RankTraceback(Exception):
    """The traceback of an exception on a rank, which cannot travel as such: the cause of the exception that can."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass
class _JobFailure:
    rank: int  # -1: a host
    process: tuple[int, int]
    exit_code: int
    what: str
    circumstance: str = ""  # what another rank has to do with it
    name: str = ""  # of the process


@dataclass
class Received:
    """Of one job, so far."""

    caller: str  # for messages: the function that the user has called
    reports: dict[tuple[int, int], bytearray] = field(default_factory=dict)  # by process, with the size before each
    finished: list[tuple[int, int]] = field(default_factory=list)  # in rank order
    failure: _JobFailure | None = None
    refusal: str | None = None  # why nothing was started: what is asked for is wrong


def receive(results: socket.socket, caller: str) -> Received:
    """What horovodrun passes on, until it has ended."""
    received = Received(caller)
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


def _report_of(received: Received, process: tuple[int, int]) -> _message.Report | None:
    """What the process reports of its function; None if it has not, or not to the end."""
    payload = bytes(received.reports.get(process, b""))
    size = int.from_bytes(payload[: _message.SIZE_BYTES], "little")
    if not payload or len(payload) != _message.SIZE_BYTES + size:
        return None
    return _message.load_report(payload[_message.SIZE_BYTES :])


def _report_of_rank(received: Received, rank: int) -> _message.Report | None:
    try:
        return _report_of(received, received.finished[rank])
    except Exception as error:
        raise RuntimeError(
            f"{received.caller}: what rank {rank} has returned cannot be made again from its pickle: "
            f"{type(error).__name__}: {error}"
        ) from error


def _failure_of(received: Received, process: tuple[int, int]) -> _message.Failure | None:
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


def _error_of(received: Received, exit_code: int) -> RuntimeError | ValueError:
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


def results_of(received: Received, code: int) -> list[Any]:
    """What the ranks have returned, in rank order.

    `code`: of horovodrun. RuntimeError, whose cause is the exception of the rank that failed first, if the job failed;
    ValueError if nothing was started.
    """
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
