"""Horovod's C functions, called as others do: by ctypes on the library."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

import horovod.torch as hvd
from horovod._common.native import core

NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous")
ANSWERED_ALWAYS = """
is_initialized mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built
""".split()
OPS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


def library() -> ctypes.CDLL:
    return hvd.mpi_ops._basics.MPI_LIB_CTYPES


def ask(name: str) -> int:
    return int(getattr(library(), f"horovod_{name}")())


def python_says(name: str) -> int:
    return int(getattr(hvd.mpi_ops, name)())


def all_of_python() -> dict[str, int]:
    return {name: python_says(name) for name in (*NUMBERS, *ANSWERED_ALWAYS)}


def all_of_c() -> dict[str, int]:
    return {name: ask(name) for name in (*NUMBERS, *ANSWERED_ALWAYS)}


def test_c_answers_what_python_does_in_a_session() -> None:
    assert all_of_c() == all_of_python()
    assert ask("rank") == int(os.environ.get("HOROVOD_RANK", "0"))
    assert [ask(f"reduce_op_{op.lower()}") for op in OPS] == [getattr(hvd, op) for op in OPS] == list(range(6))


def test_what_says_yes_or_no_may_be_taken_for_a_bool() -> None:
    for name, expected in {"is_initialized": True, "is_homogeneous": True, "mpi_built": False}.items():
        question = getattr(library(), f"horovod_{name}")
        question.restype = ctypes.c_bool
        assert question() is expected, name


def test_the_shared_object_by_its_path_is_the_same_library() -> None:
    assert ctypes.CDLL(core.__file__).horovod_rank() == hvd.rank()


def test_without_a_session_c_answers_minus_one_where_python_raises() -> None:
    hvd.barrier()
    hvd.shutdown()
    for name in NUMBERS:
        with pytest.raises(ValueError, match="init"):
            python_says(name)
        assert ask(name) == -1, name
    for name in ANSWERED_ALWAYS:
        assert ask(name) == python_says(name), name
    assert ask("is_initialized") == 0
    hvd.init()
    assert all_of_c() == all_of_python()


def test_threads_is_a_question_to_mpi() -> None:
    with pytest.raises(ValueError, match="no MPI"):
        hvd.mpi_threads_supported()
    assert ask("mpi_threads_supported") == -1


def test_c_answers_whoever_holds_pythons_lock() -> None:
    """PyDLL keeps it during the call, CDLL gives it back."""
    assert ctypes.PyDLL(core.__file__).horovod_rank() == hvd.rank()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(ask("size")))
    thread.start()
    thread.join()
    assert answers == [hvd.size()]


def test_a_forked_child_has_its_parents_numbers_in_c_as_in_python() -> None:
    """Also when it has called shutdown(), which is nothing to its parent."""
    child = os.fork()
    if child == 0:
        agrees = all_of_c() == all_of_python()
        hvd.shutdown()
        agrees = agrees and all_of_c() == all_of_python()
        os._exit(0 if agrees else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask("is_initialized") == 1
