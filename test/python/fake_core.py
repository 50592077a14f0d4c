"""A stand-in for horovod._core: a world of one rank in memory, whose answers and failures a test can choose.

Only for tests of the Python layer's own decisions: names, checks, error paths. Collectives are tested on the real core.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.utils.dlpack import to_dlpack

OPS = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "BARRIER", "JOIN", "ADASUM")
REDUCTIONS = ("AVERAGE", "SUM", "ADASUM", "MIN", "MAX", "PRODUCT")
DTYPES = {
    "UINT8": torch.uint8,
    "INT8": torch.int8,
    "UINT16": torch.uint16,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FLOAT16": torch.float16,
    "FLOAT32": torch.float32,
    "FLOAT64": torch.float64,
    "BOOL": torch.bool,
    "BFLOAT16": torch.bfloat16,
}


@dataclass
class Call:
    """One submitted operation."""

    op: int
    name: str
    data_ptr: int
    output_ptr: int
    shape: tuple[int, ...]
    dtype: int
    device: int
    reduce_op: int
    prescale: float
    postscale: float
    root_rank: int
    process_set: int


class Handle:
    def __init__(self, core: FakeCore, call: Call, keep: Any, result: Any) -> None:
        self._core = core
        self._call = call
        self._keep = keep
        self._result = result
        self._key = (call.process_set, call.name)

    def done(self) -> bool:
        return self._core.everything_done

    def wait(self) -> Any:
        self._core.pending.discard(self._key)
        error = self._core.failing.get(self._call.name)
        if error is not None:
            raise error
        size = self._bytes()
        if self._call.output_ptr and self._call.output_ptr != self._call.data_ptr:
            ctypes.memmove(self._call.output_ptr, self._call.data_ptr, size)
        return self._result

    def _dtype(self) -> torch.dtype:
        return list(DTYPES.values())[self._call.dtype]

    def _bytes(self) -> int:
        return torch.Size(self._call.shape).numel() * self._dtype().itemsize

    def output_dlpack(self) -> Any:
        output = torch.empty(self._call.shape, dtype=self._dtype())
        ctypes.memmove(output.data_ptr(), self._call.data_ptr, self._bytes())
        return to_dlpack(output)

    def received_splits(self) -> list[int]:
        return [self._call.shape[0]]

    def value(self) -> int:
        return 0


class RepeatedAllreduce:
    """Submits to the core that `core` names, under one name."""

    core: FakeCore

    def __init__(self, name: str, shape: Sequence[int], dtype: int, reduction: tuple[int, float, float, int]) -> None:
        self._call = (0, name, -1, ())
        self._dtype = dtype
        self._reduction = reduction

    def start(self, data_ptr: int, shape: Sequence[int], keep: Any) -> None:
        tensor = (data_ptr, data_ptr, shape, self._dtype, -1)
        self._handle = self.core.enqueue(self._call, tensor, self._reduction, keep)

    def wait(self) -> None:
        self._handle.wait()


def wait_all(submitted: Sequence[Any]) -> list[Any]:
    results, error = [], None
    for each in submitted:
        try:
            results.append(each.wait())
        except Exception as raised:
            error = error or raised
    if error is not None:
        raise error
    return results


@dataclass
class FakeCore:
    """What the module object below delegates to. Tests read `calls` and set the rest.

    An operation is pending until somebody waits for it, the latest that the real core may take; its name is taken for
    so long.
    """

    world: int = 1
    initialized: bool = False
    everything_done: bool = True
    calls: list[Call] = field(default_factory=list)
    failing: dict[str, BaseException] = field(default_factory=dict)
    refusing: dict[str, Exception] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    exits: int = 0
    pending: set[tuple[int, str]] = field(default_factory=set)
    joins_so_far: int = 0
    sets: dict[int, list[int]] = field(default_factory=dict)

    def init(self, environment: dict[str, str] | None = None, process_sets: Sequence[Sequence[int]] = ()) -> None:
        if self.initialized:
            return
        self.initialized = True
        self.sets = {}
        self.pending.clear()
        for ranks in process_sets:
            if tuple(ranks) not in map(tuple, self.process_sets().values()):
                self.sets[len(self.sets) + 1] = list(ranks)

    def shutdown(self) -> None:
        self.initialized = False

    def announce_failure(self, why: str) -> None:
        self.announced.append(why)

    def announce_exit(self) -> None:
        self.exits += 1

    def is_initialized(self) -> bool:
        return self.initialized

    def _number(self, value: int) -> int:
        if not self.initialized:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return value

    def rank(self) -> int:
        return self._number(0)

    local_rank = cross_rank = rank

    def size(self) -> int:
        return self._number(self.world)

    local_size = size

    def cross_size(self) -> int:
        return self._number(1)

    def is_homogeneous(self) -> bool:
        return True

    def epoch(self) -> int:
        return self._number(1)

    def joins(self) -> int:
        return self.joins_so_far

    def process_sets(self) -> dict[int, list[int]]:
        return {0: list(range(self._number(self.world))), **self.sets}

    def process_set_size(self, process_set: int) -> int:
        return len(self.process_sets().get(process_set, ()))

    def new_output(self, shape: Sequence[int], dtype: int) -> Any:
        return to_dlpack(torch.empty(tuple(shape), dtype=list(DTYPES.values())[dtype]))

    def add_process_set(self, ranks: Sequence[int]) -> int:
        if list(ranks) in self.process_sets().values():
            raise ValueError(f"A process set with ranks {list(ranks)} exists already")
        free = min(set(range(1, len(self.sets) + 2)) - set(self.sets))
        self.sets[free] = list(ranks)
        return free

    def remove_process_set(self, process_set: int) -> None:
        del self.sets[process_set]

    def seal_payload(self, purpose: str, payload: Any) -> bytes:
        return b"seal"

    def open_payload(self, sender: int, purpose: str, sealed: Any) -> int:
        return len(sealed) - len(b"seal")

    def built_with(self) -> dict[str, int]:
        return {"gloo": 1, "mpi": 0, "nccl": 0, "cuda": 0, "rocm": 0, "ddl": 0, "ccl": 0}

    def gloo_library(self) -> str:
        return "/usr/lib/libgloo.so.0"

    def enqueue(
        self,
        call: tuple[int, str, int, Sequence[int]],
        tensor: tuple[int, int, Sequence[int], int, int],
        reduction: tuple[int, float, float, int],
        keep: Any,
        result: Any = None,
    ) -> Handle:
        op, name, root_rank, _ = call
        if name in self.refusing:
            raise self.refusing[name]
        data_ptr, output_ptr, shape, dtype, device = tensor
        submitted = Call(
            op, name, data_ptr, output_ptr, tuple(shape), dtype, device, *reduction[:3], root_rank, reduction[3]
        )
        if (submitted.process_set, name) in self.pending:
            where = f" of process set {submitted.process_set}" if submitted.process_set else ""
            raise ValueError(f'an operation named "{name}"{where} is pending already')
        self.pending.add((submitted.process_set, name))
        self.calls.append(submitted)
        return Handle(self, submitted, keep, result)

    def enqueue_group(
        self,
        call: tuple[int, str, int, Sequence[int]],
        tensors: Sequence[tuple[int, int, Sequence[int], int, int]],
        reduction: tuple[int, float, float, int],
        keep: Any,
        results: Sequence[Any] | None = None,
    ) -> list[Handle]:
        op, name, *rest = call
        count = len(tensors)
        return [
            self.enqueue((op, f"{name}_{i + 1}of{count}", *rest), tensor, reduction, keep, result)
            for i, (tensor, result) in enumerate(zip(tensors, results or [None] * count, strict=True))
        ]

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]


def make_module(core: FakeCore) -> ModuleType:
    """The module object that takes the place of horovod._core."""
    module = ModuleType("horovod._core")
    constants = {f"OP_{name}": number for number, name in enumerate(OPS)}
    constants |= {f"REDUCE_{name}": number for number, name in enumerate(REDUCTIONS)}
    constants |= {f"DTYPE_{name}": number for number, name in enumerate(DTYPES)}
    methods = (
        "init shutdown announce_failure announce_exit is_initialized rank size local_rank local_size cross_rank cross_size "
        "is_homogeneous epoch joins seal_payload open_payload "
        "process_sets process_set_size new_output add_process_set remove_process_set built_with gloo_library enqueue enqueue_group"
    )
    functions = {name: getattr(core, name) for name in methods.split()}
    repeated = type("RepeatedAllreduce", (RepeatedAllreduce,), {"core": core})
    classes = {"Handle": Handle, "RepeatedAllreduce": repeated}
    functions["wait_all"] = wait_all
    vars(module).update(constants, **functions, **classes, __version__="0.29.0", __file__="fake_core.so")
    return module
