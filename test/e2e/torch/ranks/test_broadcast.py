"""Broadcast and barrier."""

from __future__ import annotations

import time

import pytest
import torch

import horovod.torch as hvd
from world import EVERYTHING, SHAPES, assert_same, assert_usable, of_all, of_rank


@pytest.mark.parametrize("dtype", EVERYTHING)
def test_every_rank_gets_the_roots_tensor(dtype: torch.dtype) -> None:
    for root in range(hvd.size()):
        for shape in SHAPES:
            inputs = of_all(shape, dtype, "broadcast")
            own = inputs[hvd.rank()].clone()
            result = hvd.broadcast(own, root)
            assert_same(result, inputs[root])
            assert own.numel() == 0 or result.data_ptr() != own.data_ptr()
            assert_same(hvd.synchronize(hvd.broadcast_async(own, root)), inputs[root])
            assert_same(own, inputs[hvd.rank()])


@pytest.mark.parametrize("dtype", EVERYTHING)
def test_in_place(dtype: torch.dtype) -> None:
    for root in range(hvd.size()):
        inputs = of_all((17, 2), dtype, "in place")
        own = inputs[hvd.rank()].clone()
        assert hvd.broadcast_(own, root) is own
        assert_same(own, inputs[root])
        own = inputs[hvd.rank()].clone()
        assert hvd.synchronize(hvd.broadcast_async_(own, root)) is own
        assert_same(own, inputs[root])


def test_a_batch_with_changing_roots_runs_asynchronously() -> None:
    roots = [i % hvd.size() for i in range(30)]
    handles = [
        hvd.broadcast_async(of_rank(hvd.rank(), (i,), torch.float32, "b"), root, name=f"b{i}")
        for i, root in enumerate(roots)
    ]
    for i, root in enumerate(roots):
        assert_same(hvd.synchronize(handles[i]), of_rank(root, (i,), torch.float32, "b"))


def test_large_tensors() -> None:
    own = torch.arange(1_500_001, dtype=torch.float64) + hvd.rank()
    root = hvd.size() - 1
    assert_same(hvd.broadcast_(own, root), torch.arange(1_500_001, dtype=torch.float64) + root)


def test_a_root_outside_the_set_is_refused_at_once() -> None:
    for root in (hvd.size(), -1):
        with pytest.raises(ValueError, match=str(root)):
            hvd.broadcast(torch.ones(1), root)
    assert_usable()


def test_the_gradient_is_the_average_for_the_root_and_zero_for_others() -> None:
    for root in range(hvd.size()):
        x = torch.ones(3, 2, requires_grad=True)
        hvd.broadcast(x, root).backward(torch.full((3, 2), float(hvd.rank() + 1)))
        mean = sum(rank + 1 for rank in range(hvd.size())) / hvd.size()
        torch.testing.assert_close(x.grad, torch.full((3, 2), mean if hvd.rank() == root else 0.0))


def test_second_derivatives() -> None:
    """All ranks reduce in the gradient of the gradient too, those that are not the root with zeros."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (first,) = torch.autograd.grad(hvd.broadcast(x**2, 0).pow(2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    is_root = hvd.rank() == 0
    torch.testing.assert_close(first, 4 * x**3 * is_root)
    torch.testing.assert_close(second, (4 + 8 / hvd.size()) * x.detach() ** 2 * is_root)


@pytest.mark.usefixtures("several_ranks")
def test_a_barrier_waits_for_the_slowest_rank() -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        time.sleep(0.3)  # others would be through
    came = torch.tensor(time.monotonic(), dtype=torch.float64)  # one clock for all processes of a machine
    hvd.barrier()
    left = time.monotonic()
    assert left >= hvd.allreduce(came, op=hvd.Max).item()


def test_a_barrier_passes_between_pending_operations() -> None:
    first = hvd.allreduce_async(torch.ones(2), name="before", op=hvd.Sum)
    hvd.barrier()
    second = hvd.allreduce_async(torch.ones(2), name="after", op=hvd.Sum)
    hvd.barrier()
    assert_same(hvd.synchronize(second), torch.full((2,), float(hvd.size())))
    assert_same(hvd.synchronize(first), torch.full((2,), float(hvd.size())))
