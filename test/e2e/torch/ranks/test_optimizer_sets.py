"""DistributedOptimizer restricted to a process set: members reduce, others step locally."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd
from training import assert_close, batch, loss, net, wrap

pytestmark = pytest.mark.usefixtures("several_ranks")


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[hvd.ProcessSet]:
    """All ranks but the last one."""
    monkeypatch.setitem(os.environ, "HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    hvd.shutdown()
    hvd.init()
    added = hvd.add_process_set(hvd.ProcessSet(range(hvd.size() - 1)))
    yield added
    hvd.shutdown()


def averaged_over(ranks: list[int]) -> torch.nn.Module:
    """Where two steps with the mean gradient of these ranks lead."""
    twin = net()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        optimizer.zero_grad()
        loss(twin, torch.cat([batch(rank, step) for rank in ranks])).backward()
        optimizer.step()
    return twin


@pytest.mark.parametrize("groups", [None, 2])
def test_members_agree_and_others_go_their_own_way(members: hvd.ProcessSet, groups: int | None) -> None:
    model = net()
    # With groups, rank 0's order of parameters is broadcast over the set: members only.
    optimizer = wrap(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), process_set=members, groups=groups
    )
    for step in range(2):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    together = members.ranks if members.included() else [hvd.rank()]
    assert_close(model, averaged_over(together or []), rtol=1e-9, atol=1e-12)
    hvd.barrier()


def test_a_non_member_may_clear_gradients_at_any_time(members: hvd.ProcessSet) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), process_set=members)
    loss(model, batch(0, 0)).backward()
    if members.included():
        with pytest.raises(AssertionError, match="race condition"):
            optimizer.zero_grad()
        optimizer.step()
    optimizer.zero_grad()
    hvd.barrier()


def test_adasum_and_a_set_are_refused(members: hvd.ProcessSet) -> None:
    model = net()
    with pytest.raises(NotImplementedError, match="global process set only"):
        wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), process_set=members, op=hvd.Adasum)


def test_a_set_that_is_not_registered_is_refused() -> None:
    model = net()
    with pytest.raises(ValueError, match="not registered"):
        wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), process_set=hvd.ProcessSet(range(hvd.size())))
