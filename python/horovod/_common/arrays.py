"""Collectives on numpy arrays, for frameworks without memory of their own on the CPU.

The core reads and writes the arrays' own memory: the only copy is the one into its fusion buffer. Each operation keeps
its arrays alive until it has ended, also when the wait for it is interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from horovod._common.calls import CPU, Call
from horovod._common.names import AutomaticNames
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from horovod._core import Handle

__all__ = ["ArrayCollectives", "reducible_code"]

_Reduction = tuple[int, float, float, int]  # op, prescale, postscale, id of the process set
Array = Any  # np.ndarray; its element types vary

_CODES = {
    "uint8": core.DTYPE_UINT8,
    "int8": core.DTYPE_INT8,
    "uint16": core.DTYPE_UINT16,
    "int16": core.DTYPE_INT16,
    "int32": core.DTYPE_INT32,
    "int64": core.DTYPE_INT64,
    "float16": core.DTYPE_FLOAT16,
    "float32": core.DTYPE_FLOAT32,
    "float64": core.DTYPE_FLOAT64,
    "bool": core.DTYPE_BOOL,
    "bfloat16": core.DTYPE_BFLOAT16,  # of the package ml_dtypes
}
_REDUCIBLE = [name for name in _CODES if name != "uint16"]


def reducible_code(array: Array, op: int, caller: str) -> int:
    """The core's code of the array's type. ValueError for types that cannot be reduced."""
    name = array.dtype.name
    if name not in _REDUCIBLE:
        raise ValueError(f"{caller}: type {name} is not supported; supported are {', '.join(_REDUCIBLE)}")
    if name == "bool" and op not in (core.REDUCE_MIN, core.REDUCE_MAX):
        raise ValueError(f"{caller}: type bool is not supported with this op; use an integer type")
    return _CODES[name]


def _transferable(array: Array) -> tuple[Array, int]:
    """An array of a type that both the core and numpy's DLPack know, over the same memory, and the type's code.

    Others travel as integers of their size, or with a last dimension of bytes.
    """
    name = array.dtype.name
    if name == "bfloat16":
        return array.view(np.uint16), core.DTYPE_UINT16
    if name == "bool":
        return array.view(np.uint8), core.DTYPE_UINT8
    if name in _CODES:
        return array, _CODES[name]
    return array.reshape((*array.shape, 1)).view(np.uint8), core.DTYPE_UINT8


_ALLREDUCE = Call(core.OP_ALLREDUCE, "allreduce")


def _tensor(array: Array, code: int, in_place: bool) -> tuple[int, int, tuple[int, ...], int, int]:
    data = array.ctypes.data
    return data, data if in_place else 0, array.shape, code, CPU


def _no_reduction(process_set_id: int) -> _Reduction:
    return core.REDUCE_SUM, 1.0, 1.0, process_set_id


def _wait_for(started: Sequence[Handle]) -> None:
    """Waits for all, then raises the first error. Ctrl-C ends it also on a thread that the main thread waits for."""
    error: Exception | None = None
    for native in started:
        try:
            native.wait_in_callback()
        except Exception as raised:
            error = error or raised
    if error is not None:
        raise error


def _run(submissions: Iterable[Sequence[Handle]]) -> None:
    """Submits one after another and waits for all, even if a later one is refused: the other ranks wait for them."""
    started: list[Handle] = []
    try:
        for handles in submissions:
            started += handles
    except Exception:
        with contextlib.suppress(Exception):  # the refusal is the first error
            _wait_for(started)
        raise
    _wait_for(started)


class CoreOutput:
    """A result in memory that the core allocated, in the form that numpy.from_dlpack() takes."""

    def __init__(self, native: Handle) -> None:
        self._native = native

    def __dlpack__(self, **_: Any) -> Any:
        return self._native.output_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class ArrayCollectives:
    """The operations of one framework module. `label` is part of its automatic names: other modules have others."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.names = AutomaticNames()

    def _start(
        self,
        call: Call,
        name: str | None,
        reduction: _Reduction,
        array: Array,
        code: int,
        in_place: bool = True,
        is_awaited: bool = False,
    ) -> Handle:
        """Submits an array under `prefix.name` or an automatic name. `is_awaited`: it is waited for before others."""
        *_, process_set_id = reduction
        wire_name = f"{call.prefix}.{name}" if name else self.names.make(f"{call.prefix}.{self._label}", process_set_id)
        try:
            tensor = _tensor(array, code, in_place)
            return core.enqueue(call.named(wire_name), tensor, reduction, array, None, is_awaited)
        except BaseException:
            if not name:
                self.names.release(process_set_id, wire_name)
            raise

    def allreduce_(
        self,
        arrays: Sequence[Array],
        names: Sequence[str | None],
        op: int,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set_id: int = 0,
    ) -> None:
        """Reduces contiguous arrays in place, each matched by its own name. Waits for all; raises the first error."""
        codes = [reducible_code(array, op, "allreduce") for array in arrays]
        reduction, is_one = (op, prescale, postscale, process_set_id), len(arrays) == 1
        _run(
            [self._start(_ALLREDUCE, name, reduction, array, code, is_awaited=is_one)]
            for array, name, code in zip(arrays, names, codes, strict=True)
        )

    def grouped_allreduce_(
        self, groups: Mapping[str, Sequence[Array]], op: int, prescale: float, postscale: float, process_set_id: int
    ) -> None:
        """The same for groups of arrays, by name: one is reduced only when all of it is ready on all ranks."""
        tensors = {
            name: [_tensor(array, reducible_code(array, op, "grouped_allreduce"), in_place=True) for array in arrays]
            for name, arrays in groups.items()
        }
        call, reduction = Call(core.OP_ALLREDUCE, "grouped_allreduce"), (op, prescale, postscale, process_set_id)

        def start(name: str) -> list[Handle]:
            named = call.named(f"grouped_allreduce.{name}")
            return core.enqueue_group(named, tensors[name], reduction, list(groups[name])).handles()

        _run(map(start, groups))

    def broadcast_(
        self, arrays: Sequence[Array], names: Sequence[str | None], root_rank: int, process_set_id: int = 0
    ) -> None:
        """Overwrites contiguous arrays of any type with those of global rank `root_rank`."""
        call = Call(core.OP_BROADCAST, "broadcast", root_rank)
        _run(
            [self._start(call, name, _no_reduction(process_set_id), *_transferable(array))]
            for array, name in zip(arrays, names, strict=True)
        )

    def allgather_with_rows(self, array: Array, name: str | None, process_set_id: int = 0) -> tuple[Array, list[int]]:
        """The rows of all ranks, in rank order, and how many each has; nothing else may differ between ranks."""
        if array.ndim == 0:
            raise ValueError("allgather: a value without dimensions has no rows to gather; pass a list of one")
        sent, code = _transferable(np.require(array, requirements="C"))
        call = Call(core.OP_ALLGATHER, "allgather")
        native = self._start(call, name, _no_reduction(process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        gathered, rows = np.from_dlpack(CoreOutput(native)), native.received_splits()
        return gathered.view(array.dtype).reshape(sum(rows), *array.shape[1:]), rows

    def allgather(self, array: Array, name: str | None, process_set_id: int = 0) -> Array:
        """The same without the numbers."""
        return self.allgather_with_rows(array, name, process_set_id)[0]

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set_id: int = 0
    ) -> tuple[Array, list[int]]:
        """The first splits[0] rows go to the first rank of the set, and so on; equal shares without splits.

        Returns the rows that came, in rank order, and how many came from each rank.
        """
        if array.ndim == 0:
            raise ValueError("alltoall: a value without dimensions has no rows to send")
        sent, code = _transferable(np.require(array, requirements="C"))
        call = Call(core.OP_ALLTOALL, "alltoall", splits=splits)
        native = self._start(call, name, _no_reduction(process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        received, rows = np.from_dlpack(CoreOutput(native)), native.received_splits()
        return received.view(array.dtype).reshape(sum(rows), *array.shape[1:]), rows

    def reducescatter(
        self,
        array: Array,
        name: str | None,
        op: int,
        process_set_id: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> CoreOutput:
        """This rank's share of the rows of the reduced array; the first ranks have one more when it does not divide."""
        if op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
            raise HorovodInternalError(f"reducescatter: the only ops are Average and Sum, got op={op!r}")
        if array.ndim == 0:
            raise ValueError("reducescatter: a value without dimensions has no rows to scatter")
        code = reducible_code(array, op, "reducescatter")
        sent = np.require(array, requirements="C")
        call = Call(core.OP_REDUCESCATTER, "reducescatter")
        native = self._start(call, name, (op, prescale, postscale, process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        return CoreOutput(native)
