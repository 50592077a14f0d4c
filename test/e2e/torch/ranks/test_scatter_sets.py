"""Alltoall and reducescatter on process sets: ranks and sizes are those of the set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd
from world import FAILURES, assert_same, assert_usable, of_rank


@pytest.fixture
def sets(session: None, several_ranks: None) -> Iterator[tuple[hvd.ProcessSet, hvd.ProcessSet]]:
    """The set of this rank, even or odd, and the other one."""
    size = hvd.size()
    hvd.shutdown()
    even, odd = hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet(range(1, size, 2))
    hvd.init(process_sets=[even, odd])
    yield (even, odd) if even.included() else (odd, even)
    hvd.barrier()
    hvd.shutdown()


def inputs_of(own: hvd.ProcessSet, shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [of_rank(rank, shape, torch.float64, "sets") for rank in own.ranks]


def test_alltoall(sets: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    own, other = sets
    members, me = len(own.ranks), own.rank()
    splits = [[i + j for j in range(members)] for i in range(members)]
    tensors = [of_rank(rank, (sum(splits[i]), 2), torch.float32, "sets") for i, rank in enumerate(own.ranks)]
    output, received = hvd.alltoall(tensors[me], splits[me], process_set=own)
    assert_same(output, torch.cat([torch.split(tensors[i], splits[i])[me] for i in range(members)]))
    assert received.tolist() == [row[me] for row in splits]
    assert_same(hvd.alltoall(torch.full((members,), float(me)), process_set=own), torch.arange(float(members)))
    with pytest.raises(ValueError, match="split"):
        hvd.alltoall(torch.ones(6), [1] * (members + 1), process_set=own)
    with pytest.raises(ValueError, match="member"):
        hvd.alltoall(torch.ones(6), process_set=other)
    assert_usable()


def test_reducescatter(sets: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    own, other = sets
    tensors = inputs_of(own, (9, 2))
    whole = torch.stack(tensors).sum(0)
    mine = whole.tensor_split(len(own.ranks))[own.rank()]
    assert_same(hvd.reducescatter(tensors[own.rank()], op=hvd.Sum, process_set=own), mine)
    assert_same(hvd.grouped_reducescatter(tensors[own.rank() : own.rank() + 1], op=hvd.Sum, process_set=own)[0], mine)
    torch.testing.assert_close(hvd.reducescatter(tensors[own.rank()], process_set=own), mine / len(own.ranks))
    with pytest.raises(ValueError, match="member"):
        hvd.reducescatter(torch.ones(6), process_set=other)
    assert_usable()


def test_gradients(sets: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    own, _ = sets
    members = len(own.ranks)
    x = torch.ones(members, requires_grad=True)
    hvd.alltoall(x, process_set=own).mul(own.rank() + 1).sum().backward()
    assert_same(x.grad, torch.arange(1.0, members + 1))
    y = torch.ones(members, 2, requires_grad=True)
    hvd.reducescatter(y, op=hvd.Sum, process_set=own).mul(own.rank() + 1).sum().backward()
    assert_same(y.grad, torch.arange(1.0, members + 1).unsqueeze(1).expand(-1, 2) * members)


def test_a_mismatch_stays_in_its_set(sets: tuple[hvd.ProcessSet, hvd.ProcessSet]) -> None:
    own, _ = sets
    if own.ranks[0] == 0 and len(own.ranks) > 1:
        with pytest.raises(FAILURES, match="uneven"):
            hvd.reducescatter(torch.ones(4, 2 + own.rank()), name="uneven", process_set=own)
    # Named, because the sets have not made the same number of calls.
    assert_same(hvd.reducescatter(torch.ones(len(own.ranks)), name="even", process_set=own), torch.ones(1))
    assert hvd.allreduce(torch.ones(1), name="all", op=hvd.Sum).item() == hvd.size()
