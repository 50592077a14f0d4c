"""A stand-in for horovod._core: the real core with one rank, which writes down what it is asked, and fails where a test
wants it to. It may say that there are more ranks: those send nothing and change no result.

Only for tests of the Python layer's own decisions: names, checks, error paths. Collectives of several ranks are tested
with several ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from horovod._common.native import core as real

CallTuple = tuple[int, str, int, Sequence[int]]
TensorTuple = tuple[int, int, Sequence[int], int, int]
ReductionTuple = tuple[int, float, float, int]


@dataclass
class Call:
    """One submitted operation."""

    op: int
    name: str
    data_ptr: int
    output_ptr: int
    shape: tuple[int, ...]
    dtype: int
    reduce_op: int
    prescale: float
    postscale: float
    process_set: int


class Handle:
    """An operation that is in flight until somebody waits for it: the latest time at which one may end."""

    def __init__(self, core: FakeCore, call: Call, of_real: Any) -> None:
        self._core = core
        self._call = call
        self._real = of_real
        self._error: Exception | None = None
        core.calls.append(call)
        core.in_flight[call.process_set, call.name] = self

    def _is_in_flight(self) -> bool:
        return (self._call.process_set, self._call.name) in self._core.in_flight

    def done(self) -> bool:
        return self._core.everything_done or not self._is_in_flight()

    def wait(self) -> Any:
        if self._is_in_flight():
            error = self._core.failing.get(self._call.name)
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupted wait: the operation goes on
            self._error = error
            del self._core.in_flight[self._call.process_set, self._call.name]
        if self._error is not None:
            raise self._error
        return self._real.wait()

    wait_in_callback = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


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


class RepeatedAllreduce:
    """Submits to the core that `core` names, under one name."""

    core: FakeCore

    def __init__(self, name: str, shape: Sequence[int], dtype: int, reduction: ReductionTuple) -> None:
        self._call: CallTuple = (real.OP_ALLREDUCE, name, -1, ())
        self.dtype = dtype
        self._reduction = reduction

    def start(self, data_ptr: int, shape: tuple[int, ...], keep_alive: Any, place: int = -1) -> None:
        tensor = (data_ptr, data_ptr, shape, self.dtype, place)
        self._handle = self.core.enqueue(self._call, tensor, self._reduction, keep_alive)

    def wait(self) -> None:
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


@dataclass
class FakeCore:
    """What the module object below has in place of the real core's functions. Tests read `calls`, `awaited` and
    `announced`, and set the rest.

    `failing`: what the wait for an operation raises, by name. `refusing`: what its submission raises.
    """

    world: int = 1
    everything_done: bool = True
    calls: list[Call] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)  # names of what its caller waits for at once
    failing: dict[str, BaseException] = field(default_factory=dict)
    refusing: dict[str, Exception] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    in_flight: dict[tuple[int, str], Handle] = field(default_factory=dict)
    joins_so_far: int = 0
    sessions: int = 0
    progress: list[int] = field(default_factory=list)  # how far training had come as each session began
    sets: dict[int, list[int]] = field(default_factory=dict)
    timeline: tuple[str, bool] | None = None

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def init(
        self, environment: dict[str, str] | None = None, process_sets: Sequence[Sequence[int]] = (), progress: int = 0
    ) -> None:
        if real.is_initialized():
            return
        real.init({})
        self.sessions += 1
        self.progress.append(progress)
        self.sets = {}
        for ranks in process_sets:
            if sorted(ranks) not in self.process_sets().values():
                self.add_process_set(ranks)

    def shutdown(self) -> None:
        real.shutdown()
        self.in_flight.clear()

    def size(self) -> int:
        return real.size() and self.world

    local_size = size

    def epoch(self) -> int:
        """0 in a world of one, as there without a launcher."""
        return self.sessions if self.size() > 1 else 0

    def joins(self) -> int:
        return self.joins_so_far

    def process_sets(self) -> dict[int, list[int]]:
        return {0: list(range(self.size())), **self.sets}

    def process_set_size(self, process_set: int) -> int:
        return len(self.process_sets().get(process_set, ()))

    def add_process_set(self, ranks: Sequence[int]) -> int:
        number = min(set(range(1, len(self.sets) + 2)) - set(self.sets))
        self.sets[number] = sorted(ranks)
        return number

    def remove_process_set(self, process_set: int) -> None:
        del self.sets[process_set]

    def pending_operations(self) -> list[str]:
        return [name for _, name in self.in_flight]

    def announce_failure(self, why: str) -> None:
        if real.is_initialized() and not self.announced:
            self.announced.append(why)

    def start_timeline(self, file: str, mark_cycles: bool) -> None:
        self.timeline = (file, mark_cycles)

    def stop_timeline(self) -> None:
        self.timeline = None

    def tensor_calls(self, classes: tuple[type, ...], current_stream: Callable[[int], int]) -> None:
        """None, as with a torch whose tensors the core cannot read itself: so what Python says of them is seen."""

    def _of_the_real(self, reduction: ReductionTuple) -> ReductionTuple:
        """The real core has the global set only. Where rank 0 is no member, it refuses."""
        return (*reduction[:3], 0) if 0 in self.process_sets().get(reduction[3], ()) else reduction

    def _written_down(
        self, call: CallTuple, name: str, tensor: TensorTuple, reduction: ReductionTuple, handle: Any
    ) -> Handle:
        data_ptr, output_ptr, shape, dtype, _ = tensor
        return Handle(self, Call(call[0], name, data_ptr, output_ptr, tuple(shape), dtype, *reduction), handle)

    def _check_name(self, name: str) -> None:
        if name in self.refusing:
            raise self.refusing[name]

    def enqueue(
        self, call: CallTuple, tensor: TensorTuple, reduction: ReductionTuple, keep_alive: Any,
        result: Any = None, is_awaited: bool = False, /,
    ) -> Handle:  # fmt: skip
        name = call[1]
        self._check_name(name)
        handle = real.enqueue(call, tensor, self._of_the_real(reduction), keep_alive, result)
        if is_awaited:
            self.awaited.append(name)
        return self._written_down(call, name, tensor, reduction, handle)

    def enqueue_group(
        self, call: CallTuple, tensors: Sequence[TensorTuple], reduction: ReductionTuple, keep_alive: Any,
        results: Sequence[Any] | None = None,
    ) -> HandleGroup:  # fmt: skip
        """All of them or none."""
        names = real.group_member_names(call[1], len(tensors))
        for name in names:
            self._check_name(name)
        handles = real.enqueue_group(call, tensors, self._of_the_real(reduction), keep_alive, results).handles()
        return HandleGroup(
            [
                self._written_down(call, name, tensor, reduction, handle)
                for name, tensor, handle in zip(names, tensors, handles, strict=True)
            ]
        )


def make_module(core: FakeCore) -> ModuleType:
    """The module object that takes the place of horovod._core."""
    module = ModuleType("horovod._core")
    own = {name: getattr(core, name) for name, member in vars(FakeCore).items() if callable(member) and name[0] != "_"}
    repeated = type("RepeatedAllreduce", (RepeatedAllreduce,), {"core": core})
    classes = {"Handle": Handle, "HandleGroup": HandleGroup, "RepeatedAllreduce": repeated}
    vars(module).update({**vars(real), **own, **classes, "wait_all": wait_all})
    return module
