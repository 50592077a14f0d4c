"""Operations among the members of process sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from sets import evens_and_odds, start_again
from world import FAILURES, assert_same, assert_usable, of_rank

pytestmark = pytest.mark.usefixtures("world_as_it_was")

OPERATIONS: dict[str, Callable[[torch.Tensor, hvd.ProcessSet], Any]] = {
    "allreduce": lambda t, ps: hvd.allreduce(t, op=hvd.Sum, process_set=ps),
    "allreduce_": lambda t, ps: hvd.allreduce_(t, op=hvd.Sum, process_set=ps),
    "allreduce_async": lambda t, ps: hvd.allreduce_async(t, op=hvd.Sum, process_set=ps),
    "allreduce_async_": lambda t, ps: hvd.allreduce_async_(t, op=hvd.Sum, process_set=ps),
    "grouped_allreduce": lambda t, ps: hvd.grouped_allreduce([t], op=hvd.Sum, process_set=ps),
    "grouped_allreduce_async_": lambda t, ps: hvd.grouped_allreduce_async_([t], op=hvd.Sum, process_set=ps),
    "allgather": lambda t, ps: hvd.allgather(t, process_set=ps),
    "grouped_allgather": lambda t, ps: hvd.grouped_allgather([t], process_set=ps),
    "broadcast": lambda t, ps: hvd.broadcast(t, ps.ranks[-1], process_set=ps),
    "broadcast_": lambda t, ps: hvd.broadcast_(t, ps.ranks[-1], process_set=ps),
    "alltoall": lambda t, ps: hvd.alltoall(t, process_set=ps),
    "reducescatter": lambda t, ps: hvd.reducescatter(t, op=hvd.Sum, process_set=ps),
    "grouped_reducescatter": lambda t, ps: hvd.grouped_reducescatter([t], op=hvd.Sum, process_set=ps),
    "sparse_allreduce": lambda t, ps: hvd.sparse_allreduce_async(t.to_sparse(), None, hvd.Sum, ps)().to_dense(),
    "sparse_average": lambda t, ps: hvd.sparse_allreduce_async(t.to_sparse(), None, hvd.Average, ps)().to_dense(),
}


Sets = tuple[hvd.ProcessSet, hvd.ProcessSet]


@pytest.fixture
def sets(world_as_it_was: None, several_ranks: None) -> Sets:
    """Even ranks and odd ones: the set of this rank, and the other."""
    evens, odds = evens_and_odds()
    start_again([evens, odds])
    return (evens, odds) if evens.included() else (odds, evens)


def result_of(value: Any) -> torch.Tensor:
    if isinstance(value, int):
        value = hvd.synchronize(value)
    result: torch.Tensor = value[0] if isinstance(value, list) else value
    return result


def expected_result(operation: str, inputs: list[torch.Tensor], own: int) -> torch.Tensor:
    total = torch.stack(inputs).sum(0).to(inputs[0].dtype)
    if "gather" in operation:
        return torch.cat(inputs)
    if "broadcast" in operation:
        return inputs[-1]
    if operation == "alltoall":
        return torch.cat([tensor.chunk(len(inputs))[own] for tensor in inputs])
    if "scatter" in operation:
        return total.chunk(len(inputs))[own]
    return total / len(inputs) if "average" in operation else total


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_runs_among_the_members_only(operation: str, sets: Sets) -> None:
    """Evens and odds work at once under the same names; a rank outside gets an error at its call, and nobody else."""
    mine, other = sets
    run = OPERATIONS[operation]
    shape = (2 * mine.size(), 3)
    for step in range(3):
        inputs = [of_rank(rank, shape, torch.float32, f"{operation} {step}") for rank in mine.ranks]
        with pytest.raises(
            ValueError, match=f"rank {hvd.rank()} is not a member of process set {other.process_set_id}"
        ):
            run(torch.ones(shape), other)
        assert_same(result_of(run(inputs[mine.rank()].clone(), mine)), expected_result(operation, inputs, mine.rank()))
    hvd.barrier(process_set=mine)
    with pytest.raises(ValueError, match="is not a member"):
        hvd.barrier(process_set=other)


def test_rows_are_dealt_out_by_the_ranks_of_the_set(sets: Sets) -> None:
    mine, _ = sets
    members, me = len(mine.ranks), mine.rank()
    splits = [[i + j for j in range(members)] for i in range(members)]
    tensors = [of_rank(rank, (sum(splits[i]), 2), torch.float32, "sets") for i, rank in enumerate(mine.ranks)]
    output, received = hvd.alltoall(tensors[me], splits[me], process_set=mine)
    assert_same(output, torch.cat([torch.split(tensors[i], splits[i])[me] for i in range(members)]))
    assert received.tolist() == [row[me] for row in splits]
    with pytest.raises(ValueError, match="split"):
        hvd.alltoall(torch.ones(6), [1] * (members + 1), process_set=mine)
    tensors = [of_rank(rank, (9, 2), torch.float64, "sets") for rank in mine.ranks]
    share = torch.stack(tensors).sum(0).tensor_split(members)[me]
    assert_same(hvd.reducescatter(tensors[me], op=hvd.Sum, process_set=mine), share)
    assert_same(hvd.grouped_reducescatter([tensors[me]], op=hvd.Sum, process_set=mine)[0], share)
    torch.testing.assert_close(hvd.reducescatter(tensors[me], process_set=mine), share / members)


def test_a_mismatch_stays_in_its_set(sets: Sets) -> None:
    mine, _ = sets
    if mine.ranks[0] == 0 and len(mine.ranks) > 1:
        with pytest.raises(FAILURES, match="uneven"):
            hvd.reducescatter(torch.ones(4, 2 + mine.rank()), name="uneven", process_set=mine)
    # Named, because the sets have not made the same number of calls.
    assert_same(hvd.reducescatter(torch.ones(len(mine.ranks)), name="even", process_set=mine), torch.ones(1))
    assert_usable()


def test_average_and_gradients_count_the_members(sets: Sets) -> None:
    mine, _ = sets
    data = torch.full((2, 2), float(hvd.rank()), requires_grad=True)
    average = hvd.allreduce(data, process_set=mine)
    assert_same(average.detach(), torch.full((2, 2), sum(mine.ranks) / len(mine.ranks)))
    average.sum().backward()
    assert_same(data.grad, torch.ones(2, 2))
    gathered = hvd.allgather(data, process_set=mine)
    data.grad = None
    (gathered * (mine.rank() + 1)).sum().backward()
    assert_same(data.grad, torch.full((2, 2), sum(range(1, mine.size() + 1)) / mine.size()))
    row = torch.ones(mine.size(), requires_grad=True)
    hvd.alltoall(row, process_set=mine).mul(mine.rank() + 1).sum().backward()
    assert_same(row.grad, torch.arange(1.0, mine.size() + 1))
    rows = torch.ones(mine.size(), 2, requires_grad=True)
    hvd.reducescatter(rows, op=hvd.Sum, process_set=mine).mul(mine.rank() + 1).sum().backward()
    assert_same(rows.grad, torch.arange(1.0, mine.size() + 1).unsqueeze(1).expand(-1, 2) * mine.size())
    told = hvd.broadcast_object({"root": hvd.rank()}, mine.ranks[-1], process_set=mine)
    assert told == {"root": mine.ranks[-1]}


def test_the_root_is_a_global_rank_of_the_set(sets: Sets) -> None:
    mine, other = sets
    with pytest.raises(ValueError, match=rf"root rank {other.ranks[0]} is not in process set {mine.process_set_id}"):
        hvd.broadcast(torch.ones(1), other.ranks[0], process_set=mine)


def test_an_unknown_id_is_an_error_at_the_call() -> None:
    unknown = hvd.ProcessSet([0])
    unknown.process_set_id = 77
    for run in OPERATIONS.values():
        with pytest.raises(ValueError, match="77"):
            run(torch.ones(2, 2), unknown)
    with pytest.raises(ValueError, match="process set 77 does not exist"):
        unknown.size()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_a_set_that_waits_for_a_rank_delays_no_other() -> None:
    """Rank 0 comes to the first set only after it was told that the second one is done with everything."""
    last = hvd.size() - 1
    slow, quick = hvd.ProcessSet([0, last]), hvd.ProcessSet(range(1, hvd.size()))
    if hvd.size() == 2:
        slow = hvd.ProcessSet([0])
    start_again([slow, quick])
    waiting = None
    if hvd.rank() == last and slow.included():
        waiting = hvd.allreduce_async(torch.ones(1 << 16), name="slow", op=hvd.Sum, process_set=slow)
    if quick.included():
        for step in range(10):
            result = hvd.allreduce(torch.full((1 << 16,), float(step)), name="quick", op=hvd.Sum, process_set=quick)
            assert result[0].item() == step * quick.size()
        hvd.barrier(process_set=quick)
    hvd.barrier()  # tells rank 0
    if waiting is not None:
        assert not hvd.poll(waiting)
    hvd.barrier()
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(1 << 16), name="slow", op=hvd.Sum, process_set=slow)[0].item() == slow.size()
    if waiting is not None:
        assert hvd.synchronize(waiting)[0].item() == 2


def test_an_optimizer_of_a_set_leaves_the_others_alone(sets: Sets) -> None:
    evens = sets[hvd.rank() % 2]
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters(), process_set=evens
    )
    model(torch.full((1, 3), float(hvd.rank()))).sum().backward()
    optimizer.step()
    gradient = sum(evens.ranks) / len(evens.ranks) if evens.included() else float(hvd.rank())
    assert_same(model.weight.detach(), torch.full((1, 3), 1.0 - gradient))
