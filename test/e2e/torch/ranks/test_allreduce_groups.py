"""Groups of allreduces, and the gradients of allreduces."""

from __future__ import annotations

import functools

import pytest
import torch

import horovod.torch as hvd
from world import NUMBERS, assert_same, assert_usable, of_all, of_rank, scaled, total


@pytest.mark.parametrize("dtype", NUMBERS)
def test_groups_reduce_each_member(dtype: torch.dtype) -> None:
    shapes = ((17,), (3, 5), (), (0, 2), (2, 2, 2))
    everybodys = [of_all(shape, dtype, f"member{i}") for i, shape in enumerate(shapes)]
    own = [inputs[hvd.rank()] for inputs in everybodys]
    results = hvd.grouped_allreduce(own, op=hvd.Sum, name="group")
    assert isinstance(results, list)
    for result, inputs in zip(results, everybodys, strict=True):
        assert_same(result, total(inputs))
    handle = hvd.grouped_allreduce_async(own, op=hvd.Max)
    for result, inputs in zip(hvd.synchronize(handle), everybodys, strict=True):
        assert_same(result, functools.reduce(torch.maximum, inputs))


def test_groups_in_place() -> None:
    tensors = [torch.full((i + 1,), float(hvd.rank())) for i in range(5)]
    results = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    expected = float(sum(range(hvd.size())))
    for tensor, result in zip(tensors, results, strict=True):
        assert result is tensor
        assert torch.equal(tensor, torch.full_like(tensor, expected))
    handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)
    assert all(a is b for a, b in zip(hvd.synchronize(handle), tensors, strict=True))
    assert tensors[0].item() == expected * hvd.size()


def test_groups_of_mixed_types_and_factors() -> None:
    own = [of_rank(hvd.rank(), (7,), dtype, "mixed") for dtype in (torch.float32, torch.float16, torch.float64)]
    results = hvd.grouped_allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0)
    for result, tensor in zip(results, own, strict=True):
        inputs = of_all((7,), tensor.dtype, "mixed")
        assert_same(result, total([scaled(t, 0.5) for t in inputs]) * 2.0)


@pytest.mark.usefixtures("several_ranks")
def test_a_group_runs_when_every_rank_has_submitted_it() -> None:
    if hvd.rank() == 0:
        group = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="late", op=hvd.Sum)
        hvd.allreduce(torch.ones(1), name="between")
        assert not hvd.poll(group)
        hvd.barrier()
    else:
        hvd.allreduce(torch.ones(1), name="between")
        hvd.barrier()
        group = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="late", op=hvd.Sum)
    first, second = hvd.synchronize(group)
    assert_same(first, torch.full((2,), float(hvd.size())))
    assert_same(second, torch.full((3,), float(hvd.size())))


@pytest.mark.usefixtures("several_ranks")
def test_a_group_with_a_member_that_differs_fails_as_a_whole() -> None:
    tensors = [torch.ones(2), torch.ones(3 + hvd.rank()), torch.ones(4)]
    with pytest.raises(hvd.HorovodInternalError):
        hvd.grouped_allreduce(tensors, name="differs", op=hvd.Sum)
    assert_usable()


def test_duplicate_names_inside_pending_groups_are_refused() -> None:
    handle = hvd.grouped_allreduce_async([torch.ones(1)] * 2, name="pair", op=hvd.Sum)
    result = hvd.synchronize(handle)
    assert [t.item() for t in result] == [hvd.size()] * 2
    again = hvd.grouped_allreduce([torch.ones(1)] * 2, name="pair", op=hvd.Sum)
    assert [t.item() for t in again] == [hvd.size()] * 2


# Gradients


@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_allreduce_is_reduced_the_same_way(op: str, dtype: torch.dtype) -> None:
    x = of_rank(hvd.rank(), (5, 4), dtype, "grad").requires_grad_()
    weights = of_rank(hvd.rank(), (5, 4), dtype, "weights")
    hvd.allreduce(x, op=getattr(hvd, op), prescale_factor=2.0, postscale_factor=0.25).backward(weights)
    expected = total(of_all((5, 4), dtype, "weights")) * 0.5 / (hvd.size() if op == "Average" else 1)
    torch.testing.assert_close(x.grad, expected)


def test_a_gradient_without_memory_of_its_own_can_be_reduced() -> None:
    x = torch.ones(3, requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum).sum().backward()
    assert_same(x.grad, torch.full((3,), float(hvd.size())))


def test_the_gradient_of_a_group() -> None:
    inputs = [torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    first, second = hvd.grouped_allreduce(inputs, op=hvd.Sum)
    (first * (hvd.rank() + 1)).sum().backward(retain_graph=True)
    expected = float(sum(rank + 1 for rank in range(hvd.size())))
    assert_same(inputs[0].grad, torch.full((3,), expected))
    assert_same(inputs[1].grad, torch.zeros(2, 2))
    assert second.requires_grad


def test_compressed_allreduce_is_differentiable() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert_same(y.detach(), torch.tensor([1.0, 2.0, 3.0]) * hvd.size())
    y.sum().backward()
    assert_same(x.grad, torch.full((3,), float(hvd.size())))


def test_tensors_of_inference_mode_are_written_in_place() -> None:
    with torch.inference_mode():
        tensors = [torch.ones(3) for _ in range(4)]
    hvd.allreduce_(tensors[0], op=hvd.Sum)
    hvd.grouped_allreduce_(tensors[1:3], op=hvd.Sum)
    assert all(tensor.tolist() == [hvd.size()] * 3 for tensor in tensors[:3])
    hvd.broadcast_parameters([("buffer", tensors[3])], root_rank=0)
    assert_usable()
