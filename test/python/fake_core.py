"""A stand-in for horovod._core: rank 0 of a world in memory, whose answers and failures a test can choose.

Only for tests of the Python layer's own decisions: names, checks, error paths. Collectives are tested on the real core,
whose rules this one keeps: what it refuses and with which words, which names are taken, what ends with a session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

import fake_checks
from fake_checks import DTYPES, NOT_INITIALIZED, OPS, REDUCTIONS, Call, internal_error
from fake_handles import (
    CallTuple,
    Handle,
    HandleGroup,
    ReductionTuple,
    RepeatedAllreduce,
    TensorTuple,
    exported,
    wait_all,
)


@dataclass
class FakeCore:
    """What the module object below delegates to. Tests read `calls`, `awaited` and `announced`, and set the rest.

    `failing`: what the wait for an operation raises, by name. `refusing`: what its submission raises.
    """

    world: int = 1
    initialized: bool = False
    everything_done: bool = True
    calls: list[Call] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)  # names of what its caller waits for at once
    failing: dict[str, BaseException] = field(default_factory=dict)
    refusing: dict[str, Exception] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    in_flight: dict[tuple[int, str], Handle] = field(default_factory=dict)
    joins_so_far: int = 0
    sessions: int = 0
    sets: dict[int, list[int]] = field(default_factory=dict)
    seals: int = 0
    timeline: tuple[str, bool] | None = None
    host_updates: list[tuple[int, int]] = field(default_factory=list)
    opened: set[bytes] = field(default_factory=set)

    def init(
        self,
        environment: dict[str, str] | None = None,
        process_sets: Sequence[Sequence[int]] = (),
        progress: int = 0,
    ) -> None:
        if self.initialized:
            return
        for index, ranks in enumerate(process_sets):
            try:
                fake_checks.check_ranks(ranks, self.world)
            except ValueError as error:
                raise ValueError(f"hvd.init(): process_sets[{index}]: {error}") from None
        self.initialized = True
        self.sessions += 1
        self.joins_so_far = 0
        self.sets = {}
        for ranks in process_sets:
            if sorted(ranks) not in self.process_sets().values():
                self.sets[len(self.sets) + 1] = sorted(ranks)

    def shutdown(self) -> None:
        self.initialized = False
        for handle in list(self.in_flight.values()):
            handle.end(internal_error("Horovod has been shut down"))

    def take_host_updates(self) -> list[tuple[int, int]]:
        updates, self.host_updates = self.host_updates, []
        return updates

    def announce_failure(self, why: str) -> None:
        if self.initialized and not self.announced:
            self.announced.append(why)

    def announce_exit(self) -> None:
        """Nothing: nobody else is there to be told."""

    def let_waits_return(self) -> None:
        """Nothing: nothing waits here."""

    def leave_job(self) -> None:
        """Nothing: nobody began this world."""

    def may_leave_later(self) -> bool:
        """No: no agent has started this process."""
        return False

    def is_initialized(self) -> bool:
        return self.initialized

    def is_child_of_rank(self) -> bool:
        return False

    def _require_topology(self) -> None:
        if not self.initialized:
            raise ValueError(NOT_INITIALIZED)

    def _require_running(self) -> None:
        if not self.initialized:
            raise internal_error(NOT_INITIALIZED)

    def _topology(self, value: int) -> int:
        self._require_topology()
        return value

    def rank(self) -> int:
        return self._topology(0)

    local_rank = cross_rank = rank

    def size(self) -> int:
        return self._topology(self.world)

    local_size = size

    def cross_size(self) -> int:
        return self._topology(1)

    def is_homogeneous(self) -> bool:
        return bool(self._topology(True))

    def epoch(self) -> int:
        """0 in a world of one, as there without a launcher."""
        return self._topology(self.sessions if self.world > 1 else 0)

    def start_timeline(self, file: str, mark_cycles: bool) -> None:
        self.timeline = (file, mark_cycles)

    def stop_timeline(self) -> None:
        self.timeline = None

    def joins(self) -> int:
        return self.joins_so_far if self.initialized else 0

    def process_sets(self) -> dict[int, list[int]]:
        self._require_topology()
        return {0: list(range(self.world)), **self.sets}

    def process_set_size(self, process_set: int) -> int:
        return len(self.process_sets().get(process_set, ()))

    def pending_operations(self) -> list[str]:
        self._require_topology()
        return [name for _, name in self.in_flight]

    def new_output(self, shape: Sequence[int], dtype: int) -> Any:
        fake_checks.check_code("dtype", dtype, DTYPES)
        self._require_running()
        return exported(torch.empty(tuple(shape), dtype=list(DTYPES.values())[dtype]))

    def add_process_set(self, ranks: Sequence[int]) -> int:
        sets = self.process_sets()
        fake_checks.check_ranks(ranks, self.world)
        for number, known in sets.items():
            if known == sorted(ranks):
                raise ValueError(f"A process set with ranks {known} exists already, with id {number}.")
        free = min(set(range(1, len(self.sets) + 2)) - set(self.sets))
        self.sets[free] = sorted(ranks)
        return free

    def remove_process_set(self, process_set: int) -> None:
        sets = self.process_sets()
        if process_set == 0:
            raise ValueError("the global process set cannot be removed")
        if process_set not in sets:
            raise ValueError(f"process set {process_set} is not registered")
        del self.sets[process_set]

    @staticmethod
    def _seal(number: int, sender: int, purpose: str, payload: bytes) -> bytes:
        """40 bytes, of which the first 8 are the number, as the real one."""
        head = number.to_bytes(8, "big")
        return head + hashlib.sha256(head + f"{sender} {purpose}\0".encode() + payload).digest()

    def seal_payload(self, purpose: str, payload: memoryview) -> bytes:
        self._require_running()
        self.seals += 1
        return self._seal(self.seals, 0, purpose, bytes(payload))

    def open_payload(self, sender: int, purpose: str, sealed: memoryview) -> int:
        self._require_running()
        payload, seal = bytes(sealed[:-40]), bytes(sealed[-40:])
        number = int.from_bytes(seal[:8], "big")
        came = f"{purpose}: what came from rank {sender}"
        if seal != self._seal(number, sender, purpose, payload):
            raise internal_error(
                f"{came} does not carry its seal: it was changed on the way, or that rank called something else"
            )
        if seal in self.opened:
            raise internal_error(f"{came} is a repetition of an earlier message (number {number})")
        self.opened.add(seal)
        return len(payload)

    def built_with(self) -> dict[str, int]:
        return {"gloo": 1, "cuda": 1, "mpi": 0, "rocm": 0, "ddl": 0, "ccl": 0}

    def nccl_version(self) -> int:
        return 0

    def gloo_library(self) -> str:
        return "/usr/lib/libgloo.so.0"

    def _checked(
        self, call: CallTuple, tensor: TensorTuple, reduction: ReductionTuple, name: str | None = None
    ) -> Call:
        op, own_name, root_rank, splits = call
        data_ptr, output_ptr, shape, dtype, device = tensor
        submitted = Call(
            op,
            name or own_name,
            data_ptr,
            output_ptr,
            tuple(shape),
            dtype,
            device,
            *reduction[:3],
            root_rank,
            reduction[3],
        )
        fake_checks.check_codes(submitted)
        self._require_running()
        if submitted.name in self.refusing:
            raise self.refusing[submitted.name]
        fake_checks.check_operation(submitted)
        fake_checks.check_submission(submitted, splits, self.process_sets(), 0, self.in_flight)
        return submitted

    def _submit(self, submitted: Call, keep_alive: Any, result: Any) -> Handle:
        self.calls.append(submitted)
        handle = Handle(self, submitted, keep_alive, result)
        self.in_flight[handle.key] = handle
        return handle

    def enqueue(
        self,
        call: CallTuple,
        tensor: TensorTuple,
        reduction: ReductionTuple,
        keep_alive: Any,
        result: Any = None,
        is_awaited: bool = False,
        /,
    ) -> Handle:
        submitted = self._checked(call, tensor, reduction)
        if is_awaited:
            self.awaited.append(submitted.name)
        return self._submit(submitted, keep_alive, result)

    def enqueue_group(
        self,
        call: CallTuple,
        tensors: Sequence[TensorTuple],
        reduction: ReductionTuple,
        keep_alive: Any,
        results: Sequence[Any] | None = None,
    ) -> HandleGroup:
        """All of them or none."""
        self._require_running()
        count = len(tensors)
        if results is not None and len(results) != count:
            raise ValueError(f"enqueue_group(): expected one result for each of {count} tensors, got {len(results)}")
        if not tensors:
            raise ValueError("an empty group of tensors")
        named = [(tensor, f"{call[1]}_{i + 1}of{count}") for i, tensor in enumerate(tensors)]
        submitted = [self._checked(call, tensor, reduction, name) for tensor, name in named]
        if submitted[0].kind in ("barrier", "join"):
            first = submitted[0]
            raise ValueError(f'{first.kind} "{first.name}": only operations on tensors can be a group')
        return HandleGroup(
            [
                self._submit(one, keep_alive, result)
                for one, result in zip(submitted, results or [None] * count, strict=True)
            ]
        )

    def tensor_calls(self, classes: tuple[type, ...], current_stream: Callable[[int], int]) -> None:
        """None, as with a torch whose tensors the core cannot read itself: so what Python says of them is seen."""

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]


def make_module(core: FakeCore) -> ModuleType:
    """The module object that takes the place of horovod._core."""
    module = ModuleType("horovod._core")
    constants = {f"OP_{name.upper()}": number for number, name in enumerate(OPS)}
    constants |= {f"REDUCE_{name.upper()}": number for number, name in enumerate(REDUCTIONS)}
    constants |= {f"DTYPE_{name.upper()}": number for number, name in enumerate(DTYPES)}
    methods = (
        "init shutdown announce_failure announce_exit let_waits_return leave_job may_leave_later is_initialized is_child_of_rank rank size local_rank local_size cross_rank cross_size "
        "is_homogeneous epoch joins start_timeline stop_timeline seal_payload open_payload process_sets process_set_size pending_operations new_output "
        "add_process_set remove_process_set built_with nccl_version gloo_library enqueue enqueue_group tensor_calls"
    )
    functions = {name: getattr(core, name) for name in methods.split()}
    repeated = type("RepeatedAllreduce", (RepeatedAllreduce,), {"core": core})
    classes = {"Handle": Handle, "HandleGroup": HandleGroup, "RepeatedAllreduce": repeated}
    functions["wait_all"] = wait_all
    vars(module).update(constants, **functions, **classes, __version__="0.29.0", __file__="fake_core.so")
    return module
