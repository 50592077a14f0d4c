"""allreduce, allgather, broadcast and reducescatter of single values."""

from __future__ import annotations

import sys
import warnings

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from horovod._common.calls import run_without_tensor
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from keras_world import BACKEND, REFUSAL, array, assert_usable

TYPES = ["uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32"]


def of_rank(rank: int, dtype: str, shape: tuple[int, ...] = (4, 3)) -> np.ndarray:
    """Small whole numbers: sums are exact in every type."""
    return np.random.default_rng(rank).integers(0, 20, shape).astype(np.float32 if "float" in dtype else dtype)


def tensor(value: np.ndarray, dtype: str) -> object:
    return keras.ops.convert_to_tensor(value, dtype=dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if (dtype, BACKEND) != ("int16", "tensorflow")])
def test_sums_are_those_of_all_ranks_in_the_type_of_the_value(dtype: str) -> None:
    total = hvd.allreduce(tensor(of_rank(hvd.rank(), dtype), dtype), average=False)
    assert keras.backend.standardize_dtype(total.dtype) == dtype
    expected = sum(of_rank(rank, dtype).astype(np.float64) for rank in range(hvd.size()))
    assert (array(keras.ops.cast(total, "float32")) == expected).all()


def test_the_average_is_the_default() -> None:
    assert array(hvd.allreduce(float(hvd.rank()))) == pytest.approx((hvd.size() - 1) / 2)
    assert array(hvd.allreduce([float(hvd.rank())], op=hvd.Sum, average=None))[0] == sum(range(hvd.size()))


def test_op_and_average_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="average=None"):
        hvd.allreduce(1.0, op=hvd.Sum)


def test_no_warning_comes_from_an_average_that_nobody_asked_for() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        hvd.allreduce(1.0)


def test_factors_are_applied_before_and_after() -> None:
    scaled = hvd.allreduce([2.0], op=hvd.Sum, average=None, prescale_factor=0.5, postscale_factor=3.0)
    assert array(scaled)[0] == 3.0 * hvd.size()


def test_a_compressed_value_comes_back_in_its_type() -> None:
    value = np.float32(1.0) + np.float32(2.0) ** -12  # not a float16
    result = array(hvd.allreduce(tensor(np.full(3, value), "float32"), compression=hvd.Compression.fp16))
    assert result.dtype == np.float32
    assert (result == 1.0).all()


def test_values_may_be_variables() -> None:
    variable = keras.Variable(np.full((2,), float(hvd.rank()), np.float32))
    assert (array(hvd.allreduce(variable, average=False)) == sum(range(hvd.size()))).all()
    assert (array(variable) == hvd.rank()).all(), "the variable itself stays as it is"


def test_a_flag_is_not_added_up() -> None:
    with pytest.raises(REFUSAL, match=r"bool is not (supported|in the list)"):
        hvd.allreduce(np.array([True]))
    assert_usable()


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_rows_of_all_ranks_are_gathered_in_order(dtype: str) -> None:
    own = tensor(of_rank(hvd.rank(), dtype, (hvd.rank() + 1, 3)), dtype)
    gathered = hvd.allgather(own)
    assert keras.backend.standardize_dtype(gathered.dtype) == dtype
    expected = np.concatenate([of_rank(rank, dtype, (rank + 1, 3)) for rank in range(hvd.size())])
    assert (array(keras.ops.cast(gathered, "float32")) == expected).all()


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_a_broadcast_gives_the_value_of_the_root(dtype: str) -> None:
    root = hvd.size() - 1
    received = hvd.broadcast(tensor(of_rank(hvd.rank(), dtype), dtype), root)
    assert keras.backend.standardize_dtype(received.dtype) == dtype
    assert (array(keras.ops.cast(received, "float32")) == of_rank(root, dtype)).all()


@pytest.mark.usefixtures("on_jax")
@pytest.mark.parametrize("dtype", ["uint32", "complex64", "float8_e4m3fn"])
def test_types_that_cannot_be_reduced_can_be_moved(dtype: str) -> None:
    import jax

    own = jax.numpy.asarray(of_rank(hvd.rank(), "float32", (2, 3))).astype(dtype)
    moved = hvd.broadcast(own, 0)
    assert moved.dtype == own.dtype
    expected = [jax.numpy.asarray(of_rank(rank, "float32", (2, 3))).astype(dtype) for rank in range(hvd.size())]
    assert (np.asarray(moved) == np.asarray(expected[0])).all()
    gathered = hvd.allgather(own)
    assert gathered.dtype == own.dtype
    assert (np.asarray(gathered) == np.concatenate([np.asarray(one) for one in expected])).all()
    with pytest.raises(ValueError, match=dtype):
        hvd.allreduce(own)
    assert_usable()


@pytest.mark.usefixtures("on_jax")
def test_wide_values_are_reduced_before_they_become_narrow() -> None:
    total = hvd.allreduce(np.array([2**40 + 1, -(2**40)], np.int64).sum(keepdims=True), average=False)
    assert int(array(total)[0]) == hvd.size()
    assert float(array(hvd.allreduce(np.array([1e300]), op=hvd.Sum, average=None, prescale_factor=1e-300))[0]) == (
        pytest.approx(hvd.size())
    )


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16", "float32"])
def test_each_rank_keeps_its_share_of_a_reduction(dtype: str) -> None:
    rows = 2 * hvd.size() + 1  # the first rank gets one more
    share = hvd.reducescatter(tensor(of_rank(hvd.rank(), dtype, (rows, 2)), dtype), op=hvd.Sum)
    assert keras.backend.standardize_dtype(share.dtype) == dtype
    total = sum(of_rank(rank, dtype, (rows, 2)).astype(np.float64) for rank in range(hvd.size()))
    first = 0 if hvd.rank() == 0 else 2 * hvd.rank() + 1
    expected = total[first : first + (3 if hvd.rank() == 0 else 2)]
    assert (array(keras.ops.cast(share, "float32")) == expected).all()


def test_values_without_rows_are_refused() -> None:
    found_by_all = "gave a tensor without dimensions; at least one is needed"
    why = "no rows to gather" if BACKEND == "jax" else found_by_all
    with pytest.raises(HorovodInternalError if BACKEND == "torch" else REFUSAL, match=why):
        hvd.allgather(3.0)
    with pytest.raises(REFUSAL, match=found_by_all if BACKEND == "tensorflow" else "no rows to scatter"):
        hvd.reducescatter(3.0)
    assert_usable()


def test_unnamed_values_match_again_after_a_refusal_and_after_a_join() -> None:
    if hvd.rank() == 0:
        with pytest.raises(REFUSAL, match="root rank 99 is not in process set 0"):
            hvd.broadcast([1.0], 99)
    assert array(hvd.allgather([hvd.rank()])).tolist() == list(range(hvd.size()))
    for _ in range(hvd.rank()):  # the others have joined on the way
        hvd.allreduce([1.0])
    run_without_tensor(core.OP_JOIN, "join.noname")
    assert array(hvd.allgather([hvd.rank()])).tolist() == list(range(hvd.size()))


@pytest.mark.usefixtures("not_on_tensorflow")
def test_global_variables_are_refused_with_what_to_use() -> None:
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)


@pytest.mark.usefixtures("on_jax")
def test_a_value_inside_a_compiled_function_is_refused() -> None:
    import jax

    with pytest.raises(RuntimeError, match="inside a compiled function"):
        jax.jit(hvd.allreduce)(1.0)
    assert_usable()


def test_names_of_the_exports_are_there() -> None:
    assert hvd.size() > hvd.rank() >= 0
    assert hvd.gloo_built()
    assert not hvd.mpi_enabled()
    assert hvd.global_process_set.size() == hvd.size()
    assert {hvd.Average, hvd.Sum, hvd.Adasum} == {0, 1, 2}


def test_nothing_of_another_framework_was_imported() -> None:
    others = {"tensorflow", "torch", "jax"} - {BACKEND}
    assert not [name for name in others if name in sys.modules]
