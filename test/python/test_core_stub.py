"""The stub of the native module says what the module has, no more and no less."""

from __future__ import annotations

import ast
from pathlib import Path

import horovod
from horovod._common.native import core

STUB = Path(horovod.__file__).parent / "_core.pyi"


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
