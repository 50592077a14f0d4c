"""join: ranks that run out of data let the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from world import assert_same, assert_usable

SUMMED = (torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def joins_last() -> int:
    """The rank with the most data in these tests: it cannot join before the others, whom its last step needs joined."""
    return hvd.size() - 1


def test_join_returns_the_last_rank_everywhere_and_again() -> None:
    for _ in range(5):
        if hvd.rank() == joins_last():
            hvd.allreduce(torch.ones(1), name="only the last")
        assert hvd.join() == joins_last()
    assert_usable()


def test_any_device_is_taken() -> None:
    everyone = hvd.allgather(torch.tensor([hvd.join(device=0), hvd.join(3)]).reshape(1, 2))
    assert (everyone == everyone[0]).all(), "every rank got the same answer"
    with pytest.raises(ValueError, match=r"join\(device='cpu'\): expected an int"):
        hvd.join("cpu")


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_joined_ranks_count_as_zeros_and_average_divides_by_all(dtype: torch.dtype) -> None:
    """The second and third step of a name are cached."""
    size = hvd.size()
    for step in range(3 * (hvd.rank() + 1)):
        active = range(step // 3, size)
        mine = torch.full((3, 2), hvd.rank() + 1).to(dtype)
        total = sum(rank + 1 for rank in active)
        assert_same(hvd.allreduce(mine, name="sum", op=hvd.Sum), torch.full((3, 2), total).to(dtype))
        divided = torch.full((3, 2), total / size if dtype.is_floating_point else total // size)
        torch.testing.assert_close(hvd.allreduce(mine, name="average"), divided.to(dtype))
    assert hvd.join() == joins_last()


@pytest.mark.usefixtures("several_ranks")
def test_every_reduction_sees_zeros() -> None:
    if hvd.rank() == joins_last():
        ones = torch.full((2,), 3.0)
        for op, expected in ((hvd.Min, 0.0), (hvd.Max, 3.0), (hvd.Product, 0.0)):
            assert hvd.allreduce(ones, op=op, name=f"op{op}").tolist() == [expected] * 2
            assert hvd.allreduce(-ones, op=op, name=f"op{op}").tolist() == [-3.0 if op == hvd.Min else 0.0] * 2
        scaled = hvd.allreduce(ones, op=hvd.Sum, name="scaled", prescale_factor=2.0, postscale_factor=0.5)
        assert scaled.tolist() == [3.0, 3.0]
        assert hvd.allreduce(ones, op=hvd.Adasum, name="adasum").tolist() == [3.0, 3.0]  # zeros change nothing
    assert hvd.join() == joins_last()


@pytest.mark.usefixtures("several_ranks")
def test_fused_and_grouped_tensors_go_on() -> None:
    """Joined ranks make the same batches as the others, of tensors that they have never seen too."""
    for step in range(4 * (hvd.rank() + 1)):
        total = float(sum(range(step // 4, hvd.size())))
        mine = float(hvd.rank())
        names = [f"t{i}" for i in range(40)] + ([f"new{step}"] if step >= 4 else [])
        handles = [
            hvd.allreduce_async(torch.full((i + 1,), mine), name=name, op=hvd.Sum) for i, name in enumerate(names)
        ]
        group = hvd.grouped_allreduce_async([torch.full((5,), mine)] * 3, name="group", op=hvd.Sum)
        for i, handle in enumerate(handles):
            assert_same(hvd.synchronize(handle), torch.full((i + 1,), total))
        for result in hvd.synchronize(group):
            assert_same(result, torch.full((5,), total))
    assert hvd.join() == joins_last()


FORBIDDEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "allgather": lambda t: hvd.allgather(t, name="x"),
    "grouped_allgather": lambda t: hvd.grouped_allgather([t, t], name="x"),
    "broadcast": lambda t: hvd.broadcast(t, hvd.size() - 1, name="x"),
    "alltoall": lambda t: hvd.alltoall(t, name="x"),
    "reducescatter": lambda t: hvd.reducescatter(t, name="x"),
}


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("operation", FORBIDDEN)
def test_operations_that_need_everybody_fail_on_those_that_call_them(operation: str) -> None:
    run = FORBIDDEN[operation]
    data = torch.ones(hvd.size(), 2)
    for _ in range(2):
        run(data)  # nobody has joined; the second time it may be cached
        if hvd.rank() > 0:
            with pytest.raises(
                hvd.HorovodInternalError, match=rf'{operation.rsplit("_", maxsplit=1)[-1]} ".*rank 0 has joined; only'
            ):
                run(data)
            assert hvd.allreduce(data, name="after the error", op=hvd.Sum)[0, 0].item() == hvd.size() - 1
            hvd.barrier()
        assert hvd.join() > 0
    run(data)
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_what_was_submitted_before_the_join_counts() -> None:
    for _ in range(3):
        early = hvd.allreduce_async(torch.ones(3), name="early", op=hvd.Sum)
        if hvd.rank() == joins_last():
            assert hvd.allreduce(torch.ones(3), name="late", op=hvd.Sum).tolist() == [1.0] * 3
        hvd.join()
        assert hvd.synchronize(early).tolist() == [float(hvd.size())] * 3


@pytest.mark.usefixtures("several_ranks")
def test_unnamed_calls_match_again_after_a_join() -> None:
    """Ranks with more data make unnamed calls that the others never make, some of which fail."""
    data = torch.ones(2)
    for epoch in range(2):
        for _ in range(1 + hvd.rank()):
            hvd.allreduce(data, op=hvd.Sum)
            hvd.grouped_allreduce([data, data], op=hvd.Sum)
        with pytest.raises(ValueError, match="add up to 5"):
            hvd.alltoall(data, splits=[5] + [0] * (hvd.size() - 1))
        early = hvd.allreduce_async(data, op=hvd.Sum)  # not waited for before the join
        if hvd.rank() == joins_last():
            for call in (hvd.allgather, hvd.allgather_object, lambda one: hvd.broadcast_object(one, hvd.rank())):
                with pytest.raises(hvd.HorovodInternalError, match="has joined"):
                    call(data)
        assert hvd.join() == joins_last()
        assert hvd.allgather_object((hvd.rank(), epoch)) == [(rank, epoch) for rank in range(hvd.size())]
        assert hvd.broadcast_object(hvd.rank(), 1) == 1
        assert hvd.allreduce(data, op=hvd.Sum).tolist() == [hvd.size()] * 2
        hvd.synchronize(early)


@pytest.mark.usefixtures("several_ranks")
def test_sets_are_not_concerned_by_a_join_of_the_world() -> None:
    """All ranks but the first go on in a set of their own, with operations that joined ranks would forbid."""
    others = hvd.ProcessSet(range(1, hvd.size()))
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets=[others])
    if hvd.rank() > 0:
        gathered = hvd.allgather(torch.tensor([hvd.rank()]), process_set=others)
        assert gathered.tolist() == list(range(1, hvd.size()))
        average = hvd.allreduce(torch.tensor([float(hvd.rank())]), process_set=others)
        assert average.item() == hvd.size() / 2
    assert hvd.join() >= 0
    hvd.barrier()
    hvd.shutdown()


def losses(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    data = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    return model(data).square().mean()


def two_layers() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()


def batches_of(rank: int) -> int:
    return 3 + 2 * rank


@pytest.mark.parametrize("groups", [None, 2])
def test_training_on_uneven_data(groups: int | None) -> None:
    """Two epochs, each ended by a join; the parameters then come from the rank that saw the most data."""
    model = two_layers()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        groups=groups,
    )
    for _ in range(2):
        for step in range(batches_of(hvd.rank())):
            optimizer.zero_grad()
            losses(model, hvd.rank(), step).backward()
            optimizer.step()
        last = hvd.join()
        assert last == joins_last()
        hvd.broadcast_parameters(model.state_dict(), last)
        hvd.broadcast_optimizer_state(optimizer, last)
    for mine, theirs in zip(model.parameters(), reference_parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def reference_parameters() -> list[torch.Tensor]:
    """The same on one rank: gradients of the ranks that still have data, divided by the number of all ranks."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for step in range(batches_of(hvd.size() - 1)):
            optimizer.zero_grad()
            active = [rank for rank in range(hvd.size()) if step < batches_of(rank)]
            (sum(losses(model, rank, step) for rank in active) / hvd.size()).backward()
            optimizer.step()
    return list(model.parameters())


def test_factors_of_a_large_tensor_beside_ranks_that_joined(several_ranks: None) -> None:
    """It runs alone and is scaled on its way through the ranks, also through those that give zeros."""
    for dtype in (torch.float32, torch.int64):
        if hvd.rank() == 0:
            own = torch.arange(1 << 19).to(dtype)
            factors = {"prescale_factor": 2.0, "postscale_factor": 4.0, "name": "scaled"}
            assert torch.equal(hvd.allreduce(own, op=hvd.Sum, **factors), own * 8)
            mean = hvd.allreduce_(own.clone(), name="mean")
            expected = own / hvd.size() if dtype is torch.float32 else own // hvd.size()
            assert torch.allclose(mean, expected)
        hvd.join()
