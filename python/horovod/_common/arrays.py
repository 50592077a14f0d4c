"""Collectives on numpy arrays, for frameworks without memory of their own on the CPU.

The core reads and writes the arrays' own memory: the only copy is the one into its fusion buffer. Each operation keeps
its arrays alive until it has ended, also when the wait for it is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from horovod._common.array_types import CoreOutput, reducible_code, transferable
from horovod._common.calls import CPU, Call
from horovod._common.handles import wait_for_all
from horovod._common.names import AutomaticNames
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from horovod._core import Handle

__all__ = ["ArrayCollectives"]

_Reduction = tuple[int, float, float, int]  # op, prescale, postscale, id of the process set
Array = Any  # np.ndarray; its element types vary

_ALLREDUCE = Call(core.OP_ALLREDUCE, "allreduce")


def _tensor(array: Array, code: int, in_place: bool) -> tuple[int, int, tuple[int, ...], int, int]:
    data = array.ctypes.data
    return data, data if in_place else 0, array.shape, code, CPU


def _no_reduction(process_set_id: int) -> _Reduction:
    return core.REDUCE_SUM, 1.0, 1.0, process_set_id


def _run(submissions: Iterable[Sequence[Handle]]) -> None:
    """Submits one after another and waits for all, even if a later one is refused: the other ranks wait for them.

    Ctrl-C ends it also on a thread that the main thread waits for.
    """
    wait_for_all(native.wait_in_callback for handles in submissions for native in handles)


def _rows_to_send(array: Array, caller: str, purpose: str) -> tuple[Array, int]:
    """A contiguous array with rows, in a type that the core can move, and the type's code."""
    if array.ndim == 0:
        raise ValueError(f"{caller}: a value without dimensions has no rows to {purpose}")
    return transferable(np.require(array, requirements="C"))


def _rows_to_scatter(array: Array, op: int, caller: str) -> tuple[Array, int]:
    """A contiguous array with rows that can be reduced, and its type's code."""
    if op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
        raise HorovodInternalError(f"{caller}: the only ops are Average and Sum, got op={op!r}")
    if array.ndim == 0:
        raise ValueError(f"{caller}: a value without dimensions has no rows to scatter")
    code = reducible_code(array, op, caller)
    return np.require(array, requirements="C"), code


def _received(native: Handle, array: Array) -> tuple[Array, list[int]]:
    """The rows that a finished operation has brought, in the type of `array`, and how many came from each rank."""
    made, rows = np.from_dlpack(CoreOutput(native)), native.received_splits()
    return made.view(array.dtype).reshape(sum(rows), *array.shape[1:]), rows


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
        call, reduction = Call(core.OP_ALLREDUCE, "grouped_allreduce"), (op, prescale, postscale, process_set_id)
        tensors = {
            name: [(array, reducible_code(array, op, "grouped_allreduce")) for array in arrays]
            for name, arrays in groups.items()
        }
        _run(self._start_group(call, name, reduction, tensors[name], in_place=True) for name in groups)

    def broadcast_(
        self, arrays: Sequence[Array], names: Sequence[str | None], root_rank: int, process_set_id: int = 0
    ) -> None:
        """Overwrites contiguous arrays of any type with those of global rank `root_rank`."""
        call = Call(core.OP_BROADCAST, "broadcast", root_rank)
        _run(
            [self._start(call, name, _no_reduction(process_set_id), *transferable(array))]
            for array, name in zip(arrays, names, strict=True)
        )

    def _start_group(
        self, call: Call, name: str, reduction: _Reduction, tensors: Sequence[tuple[Array, int]], in_place: bool
    ) -> list[Handle]:
        """Submits arrays, with the codes of their types, of which none goes before all are ready on all ranks."""
        made = [_tensor(array, code, in_place) for array, code in tensors]
        named = call.named(f"{call.prefix}.{name}")
        return core.enqueue_group(named, made, reduction, [array for array, _ in tensors]).handles()

    def allgather_with_rows(self, array: Array, name: str | None, process_set_id: int = 0) -> tuple[Array, list[int]]:
        """The rows of all ranks, in rank order, and how many each has; nothing else may differ between ranks."""
        call = Call(core.OP_ALLGATHER, "allgather")
        sent, code = _rows_to_send(array, "allgather", "gather; pass a list of one")
        native = self._start(call, name, _no_reduction(process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        return _received(native, array)

    def grouped_allgather_with_rows(
        self, arrays: Sequence[Array], name: str, process_set_id: int
    ) -> list[tuple[Array, list[int]]]:
        """The same for several arrays together."""
        call = Call(core.OP_ALLGATHER, "grouped_allgather")
        sent = [_rows_to_send(array, "grouped_allgather", "gather; pass lists of one") for array in arrays]
        started = self._start_group(call, name, _no_reduction(process_set_id), sent, in_place=False)
        wait_for_all(native.wait_in_callback for native in started)
        return [_received(native, array) for native, array in zip(started, arrays, strict=True)]

    def allgather(self, array: Array, name: str | None, process_set_id: int = 0) -> Array:
        """The rows without the numbers."""
        return self.allgather_with_rows(array, name, process_set_id)[0]

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set_id: int = 0
    ) -> tuple[Array, list[int]]:
        """The first splits[0] rows go to the first rank of the set, and so on; equal shares without splits.

        Returns the rows that came, in rank order, and how many came from each rank.
        """
        sent, code = _rows_to_send(array, "alltoall", "send")
        call = Call(core.OP_ALLTOALL, "alltoall", splits=splits)
        native = self._start(call, name, _no_reduction(process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        return _received(native, array)

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
        sent, code = _rows_to_scatter(array, op, "reducescatter")
        call = Call(core.OP_REDUCESCATTER, "reducescatter")
        native = self._start(call, name, (op, prescale, postscale, process_set_id), sent, code, in_place=False)
        native.wait_in_callback()
        return CoreOutput(native)

    def grouped_reducescatter(
        self, arrays: Sequence[Array], name: str, op: int, prescale: float, postscale: float, process_set_id: int
    ) -> list[CoreOutput]:
        """The same for several arrays together."""
        sent = [_rows_to_scatter(array, op, "grouped_reducescatter") for array in arrays]
        call = Call(core.OP_REDUCESCATTER, "grouped_reducescatter")
        started = self._start_group(call, name, (op, prescale, postscale, process_set_id), sent, in_place=False)
        wait_for_all(native.wait_in_callback for native in started)
        return [CoreOutput(native) for native in started]
