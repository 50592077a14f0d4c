"""Allreduce with op=Adasum against float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

import horovod.torch as hvd
from world import FLOATS, INTEGERS, assert_same, assert_usable, of_all, of_rank

# What is left after a rounding per level of the tree, of values below 128.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 0.25, torch.bfloat16: 2.0}


def pair_rule(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dot, norm_a, norm_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    tiny = math.sqrt(torch.finfo(torch.float64).tiny)
    left = 1.0 if norm_a < tiny else 1.0 - dot / (2.0 * norm_a)
    right = 1.0 if norm_b < tiny else 1.0 - dot / (2.0 * norm_b)
    return left * a + right * b


def adasum(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tree of pairs in float64; what is too many for a power of two is combined in pairs first."""
    level = [tensor.double() for tensor in tensors]
    power = 1 << (len(level).bit_length() - 1)
    folded = len(level) - power
    pairs = [pair_rule(level[2 * i], level[2 * i + 1]) for i in range(folded)]
    level = pairs + level[2 * folded :]
    while len(level) > 1:
        level = [pair_rule(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def assert_near(result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, rtol=0.0, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_form_equals_the_reference(dtype: torch.dtype) -> None:
    for shape in ((17,), (17, 17), (5, 17, 3), (), (0,), (50_000, 3)):
        inputs = of_all(shape, dtype, "adasum")
        own = inputs[hvd.rank()].clone()
        expected = adasum(inputs)
        assert_near(hvd.allreduce(own, op=hvd.Adasum), expected, dtype)
        assert_near(hvd.synchronize(hvd.allreduce_async(own, op=hvd.Adasum)), expected, dtype)
        assert_same(own, inputs[hvd.rank()])
        assert_near(hvd.allreduce_(own, op=hvd.Adasum), expected, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_all_ranks_get_the_same_bits(dtype: torch.dtype) -> None:
    for elements in (33, 70_001):
        result = hvd.allreduce(of_rank(hvd.rank(), (elements,), dtype, "bits") / 7, op=hvd.Adasum)
        for other in hvd.allgather(result.unsqueeze(0)):
            assert_same(other, result)


@pytest.mark.parametrize("elements", [9, 30_000])
def test_each_tensor_of_a_batch_has_its_own_coefficients(elements: int) -> None:
    # Fused into one buffer, yet one layer points the same way everywhere, one is orthogonal, one opposite.
    for _ in range(3):
        tensors = []
        for i in range(8):
            tensor = torch.zeros(elements + i)
            tensor[hvd.rank() if i % 2 else 0] = float(i + 1)
            tensors.append(tensor * (1 if i % 3 else hvd.rank() + 1))
        own = [tensor.clone() for tensor in tensors]
        handles = [hvd.allreduce_async(tensor, name=f"layer.{i}", op=hvd.Adasum) for i, tensor in enumerate(own)]
        for tensor, handle in zip(tensors, handles, strict=True):
            everyone = list(hvd.allgather(tensor.unsqueeze(0)))
            assert_near(hvd.synchronize(handle), adasum(everyone), torch.float32)


def test_groups() -> None:
    own = [of_rank(hvd.rank(), shape, torch.float64, "group") for shape in ((17, 2), (3,), (40_000,))]
    for results in (
        hvd.grouped_allreduce(own, op=hvd.Adasum),
        hvd.synchronize(hvd.grouped_allreduce_async(own, op=hvd.Adasum)),
        hvd.grouped_allreduce_([tensor.clone() for tensor in own], op=hvd.Adasum),
    ):
        for tensor, result in zip(own, results, strict=True):
            assert_near(result, adasum(of_all(tuple(tensor.shape), torch.float64, "group")), torch.float64)


def test_factors_are_applied_before_and_after() -> None:
    inputs = of_all((31,), torch.float64, "factors")
    result = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum, prescale_factor=0.25, postscale_factor=3.0)
    assert_near(result, adasum([tensor * 0.25 for tensor in inputs]) * 3.0, torch.float64)


def test_equal_gradients_are_averaged_and_orthogonal_ones_added() -> None:
    same = of_rank(0, (100,), torch.float32, "same")
    assert_same(hvd.allreduce(same, op=hvd.Adasum), same)
    axis = torch.zeros(hvd.size())
    axis[hvd.rank()] = 2.0
    assert_same(hvd.allreduce(axis, op=hvd.Adasum), torch.full((hvd.size(),), 2.0))
    assert_same(hvd.allreduce(torch.zeros(5), op=hvd.Adasum), torch.zeros(5))


def test_values_near_the_limits_stay_finite() -> None:
    for dtype in FLOATS:
        large = torch.full((10,), torch.finfo(dtype).max / 4, dtype=dtype)
        assert_same(hvd.allreduce(large, op=hvd.Adasum), large)
    tiny = torch.full((10,), 1e-160, dtype=torch.float64)
    torch.testing.assert_close(hvd.allreduce(tiny, op=hvd.Adasum), tiny * hvd.size(), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_only_floats_can_be_combined(dtype: torch.dtype) -> None:
    for form in (hvd.allreduce, hvd.allreduce_async, hvd.allreduce_):
        with pytest.raises(ValueError, match=str(dtype)):
            form(torch.ones(3, dtype=dtype), op=hvd.Adasum)
    assert_usable()


def test_only_the_global_process_set_has_it() -> None:
    part = hvd.ProcessSet([0])
    with pytest.raises(NotImplementedError, match="global process set"):
        hvd.allreduce(torch.ones(3), op=hvd.Adasum, process_set=part)
    with pytest.raises(NotImplementedError, match="global process set"):
        hvd.grouped_allreduce([torch.ones(3)], op=hvd.Adasum, process_set=part)
    assert_usable()


def test_the_gradient_is_combined_the_same_way() -> None:
    x = torch.ones(6, requires_grad=True)
    weights = of_all((6,), torch.float32, "weights")
    (hvd.allreduce(x, op=hvd.Adasum) * weights[hvd.rank()]).sum().backward()
    assert_near(x.grad, adasum(weights), torch.float32)


def test_a_sparse_gradient_has_no_adasum() -> None:
    sparse = torch.sparse_coo_tensor([[0]], torch.ones(1), (4,), check_invariants=True)
    with pytest.raises(NotImplementedError, match="dense"):
        hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Adasum)
    assert_usable()
