"""The native module: its stub, horovod._core.pyi, says what it has, and what it refuses on one rank is as promised there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

STUB = Path(horovod.__file__).parent / "_core.pyi"
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


# The stub


def stub_names(body: list[ast.stmt]) -> set[str]:
    """Names that the statements of a stub declare."""
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return names | {
        node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_the_stub_declares_what_the_module_has() -> None:
    tree = ast.parse(STUB.read_text())
    assert stub_names(tree.body) - {"__version__"} == public(core)
    handle = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Handle")
    assert stub_names(handle.body) == public(core.Handle)


def test_parameters_of_functions_agree() -> None:
    """pybind11 writes the signature as the first line of the docstring."""
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            declared = [argument.arg for argument in node.args.args]
            signature = (getattr(core, node.name).__doc__ or "").splitlines()[0]
            for name in declared:
                assert f"{name}:" in signature, f"{node.name}: {name} is not in {signature}"


def test_versions_agree() -> None:
    assert core.__version__ == horovod.__version__
