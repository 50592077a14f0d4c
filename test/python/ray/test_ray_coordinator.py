"""Coordinator: ranks, nodes and their numbers; and which of several failures is raised."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from horovod.common.exceptions import HorovodInternalError
from horovod.ray import _calls
from horovod.ray._calls import Place, WorkerDiedError
from horovod.ray.runner import Coordinator, MiniSettings


def registered(*nodes: str) -> Coordinator:
    """Of ranks whose nodes these are."""
    coordinator = Coordinator(MiniSettings())
    for rank, node in enumerate(nodes):
        coordinator.register(f"host-{node}", node, rank)
    return coordinator


def numbers(coordinator: Coordinator) -> list[tuple[int, ...]]:
    found = coordinator.finalize_registration()
    assert set(found) == set(range(coordinator.world_size))
    names = ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
    return [tuple(found[rank][name] for name in names) for rank in sorted(found)]


def test_nobody_is_a_world_of_none() -> None:
    coordinator = Coordinator(MiniSettings())
    assert (coordinator.world_size, coordinator.hostnames, coordinator.node_id_string) == (0, set(), "")
    assert coordinator.finalize_registration() == {}
    with pytest.raises(ValueError, match="no rank has been registered"):
        coordinator.establish_rendezvous()
    assert coordinator.rendezvous is None


def test_ranks_of_a_node_are_local_to_each_other() -> None:
    coordinator = registered("a", "a", "b", "b")
    assert numbers(coordinator) == [(0, 2, 0, 2), (1, 2, 0, 2), (0, 2, 1, 2), (1, 2, 1, 2)]
    assert coordinator.world_size == 4
    assert coordinator.hostnames == {"host-a", "host-b"}
    assert coordinator.node_id_string == "a:2,b:2"
    assert coordinator.node_id_by_rank == {"a": [0, 1], "b": [2, 3]}


def test_ranks_that_alternate_between_nodes_are_numbered_too() -> None:
    assert numbers(registered("a", "b", "a", "b")) == [(0, 2, 0, 2), (0, 2, 1, 2), (1, 2, 0, 2), (1, 2, 1, 2)]


def test_cross_ranks_count_the_nodes_that_have_the_local_rank() -> None:
    assert numbers(registered("a", "b", "b", "c")) == [(0, 1, 0, 3), (0, 2, 1, 3), (1, 2, 0, 1), (0, 1, 2, 3)]


def test_a_rank_is_registered_once() -> None:
    coordinator = registered("a")
    with pytest.raises(ValueError, match="world_rank=0 is registered already, on node a"):
        coordinator.register("host", "b", 0)
    with pytest.raises(ValueError, match="world_rank=-1, expected a rank from 0 on"):
        coordinator.register("host", "b", -1)


def task_error(cause: Exception) -> Any:
    return RayTaskError("execute", "its traceback", cause)


LOST = task_error(HorovodInternalError("rank 1 is lost"))
WRONG = task_error(ValueError("wrong"))


def test_the_cause_goes_before_what_it_has_caused() -> None:
    for first, second in ((LOST, WRONG), (WRONG, LOST)):
        with pytest.raises(RayTaskError) as caught:
            _calls._raise_cause({Place(0): first, Place(1): second})
        assert caught.value is WRONG
    with pytest.raises(RayTaskError) as caught:
        _calls._raise_cause({Place(0): LOST})
    assert caught.value is LOST


def test_a_death_goes_before_all() -> None:
    failures = {Place(0): LOST, Place(1): WRONG, Place(2, "id", "name"): ActorDiedError()}
    with pytest.raises(WorkerDiedError, match=r"^rank 2 on name \(node id\) has died: "):
        _calls._raise_cause(failures)
