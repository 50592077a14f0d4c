"""The fake core keeps the rules of the real one: on one rank both give the same answers, and refuse in the same words."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod
from fake_core import FakeCore, make_module
from horovod._common.native import core as real_core

STUB = Path(horovod.__file__).parent / "_core.pyi"
DATA = np.ones(4, np.float32)
POINTER = DATA.ctypes.data


def fake() -> Any:
    return make_module(FakeCore())


def outcome(run: Callable[[], Any]) -> str:
    """What comes out, or the error, in words."""
    try:
        return repr(run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(script: Callable[[Any], list[Callable[[], Any]]]) -> None:
    """Runs the steps that a script makes for a core on the fake and on the real one."""
    fake_steps, real_steps = script(fake()), script(real_core)
    try:
        for number, (on_fake, on_real) in enumerate(zip(fake_steps, real_steps, strict=True)):
            assert outcome(on_fake) == outcome(on_real), f"step {number}"
    finally:
        real_core.shutdown()


class Bench:
    """Submits operations with one thing changed."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.float = core.DTYPE_FLOAT32
        self.sum = (core.REDUCE_SUM, 1.0, 1.0, 0)

    def enqueue(self, kind: str = "ALLREDUCE", name: str = "allreduce.x", **given: Any) -> Any:
        core_allocates = kind in ("ALLGATHER", "ALLTOALL", "REDUCESCATTER")
        given = {
            "data": POINTER,
            "output": 0 if core_allocates else POINTER,
            "shape": (4,),
            "dtype": self.float,
            **given,
        }
        call = (getattr(self.core, f"OP_{kind}"), name, given.get("root", -1), given.get("splits", ()))
        tensor = (given["data"], given["output"], given["shape"], given["dtype"], -1)
        return self.core.enqueue(call, tensor, given.get("reduction", self.sum), DATA)

    def wait(self, kind: str = "ALLREDUCE", **given: Any) -> Any:
        """One that is refused, or waited for."""
        return self.enqueue(kind, **given).wait()

    def group(self, *tensors: Any, kind: str = "ALLREDUCE", **given: Any) -> Any:
        return self.core.enqueue_group(
            (getattr(self.core, f"OP_{kind}"), "g", -1, ()), tensors, self.sum, DATA, **given
        )

    def tensor(self, pointer: int = POINTER) -> Any:
        return (pointer, pointer, (4,), self.float, -1)


def functions_of_the_stub() -> dict[str, list[str]]:
    """The parameters of each function, and of each method as Class.method."""
    found = {}
    for node in ast.parse(STUB.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for function in (member for member in members if isinstance(member, ast.FunctionDef)):
            arguments = (*function.args.posonlyargs, *function.args.args)
            found[prefix + function.name] = [argument.arg for argument in arguments]
    return found


def test_the_fake_has_nothing_that_the_real_one_has_not() -> None:
    module, declared = fake(), functions_of_the_stub()
    own = {name: thing for name, thing in vars(module).items() if callable(thing) and not isinstance(thing, type)}
    for cls in (module.Handle, module.RepeatedAllreduce):
        own |= {
            f"{cls.__name__}.{name}": getattr(cls, name) for name in dir(cls) if f"{cls.__name__}.{name}" in declared
        }
    assert len(own) > 30
    for name, function in own.items():
        plain = getattr(function, "fget", function)  # of a property
        code = getattr(plain, "__func__", plain).__code__
        parameters = list(code.co_varnames[: code.co_argcount])
        assert [p for p in parameters if p != "self"] == [p for p in declared[name] if p != "self"], name


def test_before_init() -> None:
    def script(core: Any) -> list[Callable[[], Any]]:
        bench = Bench(core)
        repeated = core.RepeatedAllreduce("allreduce.r", (4,), bench.float, bench.sum)
        return [
            *(getattr(core, name) for name in "rank size local_size cross_rank is_homogeneous epoch joins".split()),
            *(getattr(core, name) for name in "process_sets pending_operations built_with is_initialized".split()),
            lambda: core.process_set_size(0),
            lambda: core.add_process_set([0]),
            lambda: core.remove_process_set(1),
            bench.enqueue,
            lambda: bench.enqueue("ALLGATHER"),
            lambda: bench.group(bench.tensor()),
            lambda: core.new_output((3,), bench.float),
            lambda: core.seal_payload("purpose", memoryview(b"abc")),
            lambda: core.open_payload(0, "purpose", memoryview(b"a" * 50)),
            repeated.wait,
            lambda: repeated.start(POINTER, (4,), DATA),
            lambda: core.announce_failure("nobody hears it"),
            core.announce_exit,
            core.may_leave_later,
            core.shutdown,
            *((lambda ranks=ranks: core.init({}, [ranks])) for ranks in ([3], [0, 0], [])),
            core.is_initialized,
        ]

    same(script)


REFUSED: list[dict[str, Any]] = [
    {"reduction": (1, 1.0, 1.0, 7)},
    {"kind": "BROADCAST", "root": 5},
    {"name": ""},
    {"name": "x" * 5000},
    {"dtype": 99},
    {"reduction": (99, 1.0, 1.0, 0)},
    {"data": 0, "output": 0},
    {"data": 0},
    {"kind": "ALLTOALL", "splits": (9,)},
    {"kind": "ALLTOALL", "splits": (2, 2)},
    {"kind": "ALLTOALL", "splits": (-1,)},
    {"kind": "REDUCESCATTER", "reduction": (4, 1.0, 1.0, 0)},
    {"dtype": 9},
    {"dtype": 2},
    {"dtype": 9, "reduction": (4, 2.0, 1.0, 0)},
    {"dtype": 9, "reduction": (3, 1.0, 0.5, 0)},
    {"dtype": 4, "reduction": (2, 1.0, 1.0, 0)},
]


def test_what_is_refused() -> None:
    def script(core: Any) -> list[Callable[[], Any]]:
        bench = Bench(core)
        return [
            lambda: core.init({}),
            *((lambda given=given: bench.wait(**given)) for given in REFUSED),
            bench.group,
            lambda: bench.group(bench.tensor(), results=[1, 2]),
            lambda: bench.group((0, 0, (), bench.float, -1), kind="BARRIER"),
            lambda: bench.group(bench.tensor(), bench.tensor(pointer=0)),
            lambda: core.new_output((3,), 99),
            lambda: core.add_process_set([0]),
            lambda: core.add_process_set([1]),
            lambda: core.add_process_set([0, 0]),
            lambda: core.add_process_set([]),
            lambda: core.remove_process_set(3),
            lambda: core.remove_process_set(0),
            core.pending_operations,
        ]

    same(script)


def test_what_is_done_and_what_can_be_asked_then() -> None:
    def script(core: Any) -> list[Callable[[], Any]]:
        bench = Bench(core)
        made: dict[str, Any] = {}
        repeated = core.RepeatedAllreduce("allreduce.r", (4,), bench.float, bench.sum)

        def start(kind: str, name: str) -> None:
            made[name] = bench.enqueue(kind, name=name)

        def seal(purpose: str) -> int:
            made["sealed"] = memoryview(b"abc" + core.seal_payload(purpose, memoryview(b"abc")))
            return len(made["sealed"])

        asked = [
            ask
            for kind in ("ALLREDUCE", "ALLGATHER", "BARRIER", "JOIN")
            for ask in (
                lambda kind=kind: start(kind, f"it.{kind}"),
                lambda kind=kind: made[f"it.{kind}"].wait(),
                lambda kind=kind: made[f"it.{kind}"].wait(),
                lambda kind=kind: made[f"it.{kind}"].result(),
                lambda kind=kind: made[f"it.{kind}"].done(),
                lambda kind=kind: made[f"it.{kind}"].value(),
                lambda kind=kind: made[f"it.{kind}"].received_splits(),
                lambda kind=kind: type(made[f"it.{kind}"].output_dlpack()).__name__,
                lambda kind=kind: made[f"it.{kind}"].output_dlpack(),
            )
        ]
        return [
            lambda: core.init({}),
            lambda: core.init({}),
            *asked,
            core.joins,
            core.epoch,
            lambda: bench.group(bench.tensor(), results=["result"]).wait(),
            lambda: bench.group((POINTER, 0, (4,), bench.float, -1), results=["result"], kind="ALLGATHER").wait(),
            lambda: [handle.wait() for handle in bench.group(bench.tensor()).handles()],
            lambda: (core.HandleGroup().done(), core.HandleGroup().wait()),
            lambda: core.wait_all([bench.enqueue(name="a"), bench.enqueue(name="b")]),
            lambda: core.wait_all([]),
            lambda: repeated.start(POINTER, (4,), DATA),
            repeated.wait,
            repeated.wait,
            lambda: seal("purpose"),
            lambda: core.open_payload(0, "another", made["sealed"]),
            lambda: core.open_payload(1, "purpose", made["sealed"]),
            lambda: core.open_payload(0, "purpose", made["sealed"]),
            lambda: core.open_payload(0, "purpose", made["sealed"]),
            core.shutdown,
            lambda: made["it.ALLREDUCE"].wait(),  # noqa: PLW0108  it is made by a step before
            lambda: core.init({}),
            core.joins,
        ]

    same(script)


def test_operations_that_are_in_flight() -> None:
    """What one rank alone cannot show: its operations end at once."""
    core = FakeCore(world=2)
    module = make_module(core)
    bench = Bench(module)
    module.init()
    handle = bench.enqueue()
    with pytest.raises(ValueError, match="call wait"):
        handle.value()
    with pytest.raises(ValueError, match=r'an operation named "allreduce\.x" is pending already'):
        bench.enqueue()
    core.failing["allreduce.x"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    assert module.pending_operations() == ["allreduce.x"]
    bench.enqueue(name="g_2of2")
    with pytest.raises(ValueError, match="pending already"):
        bench.group(bench.tensor(), bench.tensor())
    assert core.names == ["allreduce.x", "g_2of2"], "a group is submitted as a whole or not at all"
    module.shutdown()
    assert handle.done()
    with pytest.raises(RuntimeError, match="shut down"):
        handle.wait()
    module.init()
    assert (module.pending_operations(), module.epoch()) == ([], 2)
