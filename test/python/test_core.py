"""What the core refuses before it is asked by a framework's module: as horovod._core.pyi promises it, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

DATA = np.ones(4, np.float32)
POINTER = DATA.ctypes.data
SUM = (core.REDUCE_SUM, 1.0, 1.0, 0)
TENSOR = (POINTER, POINTER, (4,), core.DTYPE_FLOAT32, -1)


@pytest.fixture
def session() -> Iterator[None]:
    core.init({})
    yield
    core.shutdown()


def enqueue(op: int = core.OP_ALLREDUCE, tensor: Any = TENSOR, reduction: Any = SUM, name: str = "x") -> Any:
    return core.enqueue((op, name, -1, ()), tensor, reduction, DATA)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: enqueue(op=99), "kind must be 0..7, not 99"),
        (lambda: enqueue(reduction=(99, 1.0, 1.0, 0)), "op must be 0..5, not 99"),
        (lambda: enqueue(tensor=(POINTER, POINTER, (4,), 99, -1)), "dtype must be 0..12, not 99"),
        (lambda: core.new_output((3,), 99), "dtype must be 0..12, not 99"),
        (lambda: core.enqueue_group((core.OP_ALLREDUCE, "g", -1, ()), [TENSOR], SUM, DATA, results=[1, 2]), "one result"),
        (lambda: core.RepeatedAllreduce("r", (4,), core.DTYPE_FLOAT32, SUM).wait(), "nothing was submitted"),
    ],
    ids=["kind", "reduction", "type", "type of an output", "results", "wait before start"],
)
def test_what_is_refused(session: None, call: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        call()


def test_an_output_is_taken_once(session: None) -> None:
    gathered = enqueue(op=core.OP_ALLGATHER, tensor=(POINTER, 0, (4,), core.DTYPE_FLOAT32, -1))
    gathered.wait()
    gathered.output_dlpack()
    with pytest.raises((ValueError, RuntimeError), match="output"):
        gathered.output_dlpack()
    in_place = enqueue()
    in_place.wait()
    with pytest.raises((ValueError, RuntimeError), match="output"):
        in_place.output_dlpack()


def test_what_has_ended_stays_so_after_shutdown(session: None) -> None:
    handle = enqueue()
    handle.wait()
    core.shutdown()
    assert handle.done()
    handle.wait()


@pytest.mark.parametrize(
    "call",
    [
        lambda: core.new_output((3,), core.DTYPE_FLOAT32),
        lambda: core.seal_payload("purpose", memoryview(b"abc")),
        lambda: core.open_payload(0, "purpose", memoryview(b"a" * 50)),
        enqueue,
    ],
    ids=["new_output", "seal_payload", "open_payload", "enqueue"],
)
def test_nothing_is_done_before_init(call: Callable[[], Any]) -> None:
    with pytest.raises(HorovodInternalError, match="not been initialized"):
        call()
