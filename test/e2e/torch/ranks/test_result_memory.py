"""Memory of large results: recycled, never shared, the tensor's own (docs/design/output-memory.md)."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd
from page_faults import BEYOND_MALLOC, FRESH, faults
from world import FAILURES, assert_same, assert_usable, of_rank

LARGE = (1 << 20,)


def test_pages_of_results_that_are_gone_serve_the_next() -> None:
    x = torch.ones(BEYOND_MALLOC)
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: hvd.allreduce(x),
        "grouped_allreduce": lambda: hvd.grouped_allreduce([x]),
        "broadcast": lambda: hvd.broadcast(x, 0),
        "allgather": lambda: hvd.allgather(x[: BEYOND_MALLOC // hvd.size()]),
    }
    counted = {name: (call(), min(faults(call) for _ in range(2)))[1] for name, call in calls.items()}
    assert all(count < FRESH for count in counted.values()), counted


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(("most", "is_kept"), [("35M", False), ("64M", True)])
def test_a_variable_bounds_the_memory_that_is_kept_of_results(
    most: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(BEYOND_MALLOC)  # 36 MiB
    hvd.shutdown()
    with monkeypatch.context() as context:
        context.setenv("HOROVOD_IDLE_OUTPUT_BYTES", most)
        hvd.init()
    result = hvd.allreduce(x)
    while_it_lives = resident_bytes()
    del result
    given_back = while_it_lives - resident_bytes()
    hvd.shutdown()
    hvd.init()
    assert (given_back > x.nbytes / 2) != is_kept, given_back


def test_results_that_live_share_nothing_and_outlive_the_session() -> None:
    results = [hvd.allreduce(torch.full(LARGE, float(i + hvd.rank()))) for i in range(4)]
    assert len({result.data_ptr() for result in results}) == 4
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    results.append(hvd.allreduce(torch.full(LARGE, 4.0 + hvd.rank())))
    for i, result in enumerate(results):
        assert result.shape == LARGE
        assert bool((result == i + (hvd.size() - 1) / 2).all())
    results.clear()
    assert_usable()


def test_a_large_result_is_a_tensor_like_any_other() -> None:
    for dtype in (torch.bfloat16, torch.bool, torch.int8, torch.float64):
        own = of_rank(hvd.rank(), (3, 1 << 19), dtype)
        result = hvd.allreduce(own, op=hvd.Max)
        everybodys = [of_rank(rank, (3, 1 << 19), dtype) for rank in range(hvd.size())]
        expected = torch.stack(everybodys).amax(0) if dtype is not torch.bool else torch.stack(everybodys).any(0)
        assert_same(result, expected)
        assert result.is_contiguous()
        assert not result.requires_grad
        assert_same(pickle.loads(pickle.dumps(result)), expected)
        assert_same(result.share_memory_(), expected)
        assert result.set_() is result
    weight = torch.ones(LARGE, requires_grad=True)
    hvd.allreduce(weight, op=hvd.Sum).sum().backward()
    assert weight.grad is not None
    assert bool((weight.grad == hvd.size()).all())


def test_average_and_factors_round_as_separate_steps_do() -> None:
    own = (torch.arange(1 << 19) % 1009 * 0.37 + hvd.rank()).float()
    for dtype in (torch.float32, torch.float16):
        inputs = own.to(dtype)
        scaled = hvd.allreduce((inputs * 0.7).to(dtype), op=hvd.Sum) * (1 / 3)
        assert_same(hvd.allreduce(inputs, op=hvd.Sum, prescale_factor=0.7, postscale_factor=1 / 3), scaled)
        assert_same(hvd.allreduce_(inputs.clone(), op=hvd.Sum, prescale_factor=0.7, postscale_factor=1 / 3), scaled)


def test_autograd_knows_what_is_written_in_place() -> None:
    calls: list[Callable[[torch.Tensor], object]] = [
        hvd.allreduce_,
        lambda x: hvd.synchronize(hvd.allreduce_async_(x)),
        lambda x: hvd.broadcast_(x, 0),
        lambda x: hvd.grouped_allreduce_([x, torch.ones(2)]),
    ]
    for call in calls:
        weight, x = torch.ones(2, requires_grad=True), torch.ones(2)
        product = (weight * x).sum()
        call(x)
        assert x._version > 0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    x = torch.ones(2)
    hvd.allreduce(x)
    hvd.broadcast(x, 0)
    assert x._version == 0


def test_a_group_ends_as_a_whole(several_ranks: None) -> None:
    """The first error is raised when all members have ended, so their memory is free."""
    good, bad = torch.ones(1 << 18), torch.ones(2 + hvd.rank())
    with pytest.raises(FAILURES, match="shape"):
        hvd.grouped_allreduce([good, bad], name="uneven")
    assert_usable()
