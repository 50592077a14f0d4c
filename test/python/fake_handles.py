"""The operations of the fake core: handles that are in flight until somebody waits for them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import to_dlpack

import fake_checks
from fake_checks import OPS, Call

if TYPE_CHECKING:
    from fake_core import FakeCore

_ALLOCATED = ("allgather", "alltoall", "reducescatter")  # kinds
CallTuple = tuple[int, str, int, Sequence[int]]
TensorTuple = tuple[int, int, Sequence[int], int, int]
ReductionTuple = tuple[int, float, float, int]


def exported(tensor: torch.Tensor) -> Any:
    """A capsule of DLPack's, as the core makes them: bools and 8-bit floats are bytes."""
    return to_dlpack(tensor.view(torch.uint8) if tensor.itemsize == 1 and tensor.dtype != torch.int8 else tensor)


class Handle:
    """An operation that is in flight until somebody waits for it: the latest time at which a real one may end."""

    def __init__(self, core: FakeCore, call: Call, keep_alive: Any, result: Any) -> None:
        self._core = core
        self._call = call
        self._keep_alive = keep_alive
        self._result = result
        self._output: Any = None
        self._error: BaseException | None = None
        self._in_flight = True

    @property
    def key(self) -> tuple[int, str]:
        return self._call.process_set, self._call.name

    def done(self) -> bool:
        return not self._in_flight or self._core.everything_done

    def wait(self) -> Any:
        if self._in_flight:
            error = self._core.failing.get(self._call.name)
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupted wait: the operation goes on
            self.end(error)
        if self._error is not None:
            raise self._error
        return self.result()

    wait_in_callback = wait

    def end(self, error: Exception | None = None) -> None:
        """The operation ends: its name is free, and nothing is kept alive any more."""
        if error is None:
            self._write_result()
        self._in_flight, self._error, self._keep_alive = False, error, None
        self._core.in_flight.pop(self.key, None)
        if error is None and self._call.kind == "join":
            self._core.joins_so_far += 1

    def _write_result(self) -> None:
        call, size = self._call, fake_checks.byte_size(self._call)
        if call.kind in _ALLOCATED:
            self._output = torch.empty(call.shape, dtype=call.torch_type)
            ctypes.memmove(self._output.data_ptr(), call.data_ptr, size)
        elif call.output_ptr != call.data_ptr:
            ctypes.memmove(call.output_ptr, call.data_ptr, size)

    def _require_done(self) -> None:
        if self._in_flight:
            raise ValueError("the operation is not done yet: call wait() first")

    @property
    def dtype(self) -> int:
        return self._call.dtype

    def result(self) -> Any:
        """The fake is given no memory for results whose shape a caller guesses: those are on GPUs."""
        self._require_done()
        return None if self._call.kind in _ALLOCATED else self._result

    def output_dlpack(self) -> Any:
        self._require_done()
        if self._output is None:
            raise ValueError("this operation has no output of its own: it wrote to the given memory")
        output, self._output = self._output, None
        return exported(output)

    def received_splits(self) -> list[int]:
        """The other ranks of the fake send nothing."""
        self._require_done()
        if self._call.kind not in ("allgather", "alltoall"):
            return []
        others = len(self._core.process_sets()[self._call.process_set]) - 1
        return [*(self._call.shape[:1] or [1]), *[0] * others]

    def value(self) -> int:
        self._require_done()
        return 0


class RepeatedAllreduce:
    """Submits to the core that `core` names, under one name."""

    core: FakeCore

    def __init__(self, name: str, shape: Sequence[int], dtype: int, reduction: ReductionTuple) -> None:
        self._call: CallTuple = (OPS.index("allreduce"), name, -1, ())
        self._dtype = dtype
        self._reduction = reduction
        self._handle: Handle | None = None

    @property
    def dtype(self) -> int:
        return self._dtype

    def start(self, data_ptr: int, shape: tuple[int, ...], keep_alive: Any, place: int = -1) -> None:
        tensor = (data_ptr, data_ptr, shape, self._dtype, place)
        self._handle = self.core.enqueue(self._call, tensor, self._reduction, keep_alive)

    def wait(self) -> None:
        if self._handle is None:
            raise ValueError("nothing was submitted that could be waited for")
        self._handle.wait()


def wait_all(submitted: Sequence[Handle | RepeatedAllreduce]) -> list[Any]:
    """KeyboardInterrupt leaves those in flight that come after it."""
    results, error = [], None
    for each in submitted:
        try:
            results.append(each.wait())
        except Exception as raised:
            error = error or raised
    if error is not None:
        raise error
    return results


class HandleGroup:
    """The handles of a group."""

    def __init__(self, members: Sequence[Handle] = ()) -> None:
        self._members = list(members)

    def done(self) -> bool:
        return all(member.done() for member in self._members)

    def wait(self) -> list[Any]:
        return wait_all(self._members)

    def handles(self) -> list[Handle]:
        return self._members
