"""The task and the reports as bytes."""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import cloudpickle

SIZE_BYTES = 8
# Of a task, which the launcher holds once for each host, and of one rank's report.
LARGEST_TASK = 1 << 30
LARGEST_REPORT = 1 << 32


@dataclass(frozen=True)
class Task:
    """What a rank is to call."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """An exception that left the function, as far as it can travel."""

    kind: str  # "ValueError", "mymodule.MyError"
    text: str  # str(exception)
    trace: str
    # Its pickle, apart: the caller may lack what it needs to make it again, and then has the words all the same. None:
    # it cannot be pickled, or not be made again even on its rank.
    error: bytes | None


@dataclass(frozen=True)
class Report:
    """What became of the function on one rank."""

    value: Any = None
    failure: Failure | None = None


class _FunctionPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the files of functions that travel by value, so that tracebacks on ranks show their lines."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.CodeType):
            return super().reducer_override(obj)
        make, arguments = self.dispatch_table[types.CodeType](obj)
        return _made_code, (make, arguments, obj.co_filename)


def _made_code(make: Callable[..., types.CodeType], arguments: tuple[Any, ...], file: str) -> types.CodeType:
    return make(*arguments).replace(co_filename=file)


def with_size(payload: bytes) -> bytes:
    return len(payload).to_bytes(SIZE_BYTES, "little") + payload


def dump_task(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, caller: str = "horovod.run"
) -> bytes:
    """The task, and where this process finds modules, without which a rank could not load functions of the script's
    neighbours. ValueError if it is too large, TypeError if it cannot travel; their text begins with `caller`."""
    if not callable(func):
        raise TypeError(f"{caller}: func is {func!r}, expected a function")
    buffer = io.BytesIO()
    try:
        _FunctionPickler(buffer).dump(Task(func, tuple(args), dict(kwargs)))
    except Exception as error:
        raise TypeError(f"{caller}: the function or an argument cannot be pickled: {error}") from error
    payload: bytes = pickle.dumps((list(sys.path), buffer.getvalue()))
    if len(payload) > LARGEST_TASK:
        raise ValueError(
            f"{caller}: the function and its arguments take {len(payload)} bytes, at most {LARGEST_TASK} are sent; "
            "let the ranks load large data themselves"
        )
    return payload


def load_task(payload: bytes) -> Task:
    path, task = pickle.loads(payload)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    loaded: Task = pickle.loads(task)
    return loaded


def dump_report(report: Report) -> bytes:
    """TypeError if what it holds cannot be pickled, ValueError if it is too large."""
    buffer = io.BytesIO()
    try:
        cloudpickle.dump(report, buffer)
    except Exception as error:
        kind = type(report.value).__qualname__
        raise TypeError(f"the function's result, of type {kind}, cannot be pickled: {error}") from error
    if buffer.tell() > LARGEST_REPORT:
        raise ValueError(f"the function's result takes {buffer.tell()} bytes, at most {LARGEST_REPORT} can be returned")
    return buffer.getvalue()


def _pickled(error: BaseException) -> bytes | None:
    try:
        payload: bytes = cloudpickle.dumps(error)
        pickle.loads(payload)  # some exceptions pickle, and cannot be made again from that
    except Exception:
        return None
    return payload if len(payload) <= LARGEST_REPORT // 2 else None


def dump_failure(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        kind = f"{type(error).__module__}.{kind}"
    try:
        text = str(error)
    except Exception:
        text = ""
    return dump_report(Report(failure=Failure(kind, text, trace, _pickled(error))))


def load_report(payload: bytes) -> Report:
    report: Report = pickle.loads(payload)
    return report


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """EOFError if the stream ends before."""
    payload = stream.read(size)
    if len(payload) != size:
        raise EOFError(f"{len(payload)} bytes of {size}")
    return payload


def write_all(fd: int, payload: bytes) -> None:
    left = memoryview(payload)
    while left:
        left = left[os.write(fd, left) :]
