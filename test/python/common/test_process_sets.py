"""The Python side of process sets: which object gets which id, when it loses it, and automatic names in sets."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from horovod._common.names import AutomaticNames

DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


@pytest.fixture
def three_ranks(fake_uninitialized: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(DYNAMIC, "")
    fake_uninitialized.core.world = 3
    return fake_uninitialized


def test_init_gives_ids_in_the_order_of_the_list(three_ranks: Any) -> None:
    hvd = three_ranks.hvd
    first, second = hvd.ProcessSet([2, 0]), hvd.ProcessSet([1])
    hvd.init(process_sets=(first, second))
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    assert hvd.global_process_set.ranks == [0, 1, 2]
    assert copy.deepcopy(first) is first
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2], 1: [0, 2], 2: [1]}


def test_all_ranks_are_all_ranks_in_another_process_too(three_ranks: Any) -> None:
    """A function that is sent to ranks, or a wrapped optimizer, holds it; its ranks here are not those there."""
    hvd = three_ranks.hvd
    sent = pickle.dumps((hvd.global_process_set, hvd.ProcessSet([1, 0])))
    everyone, some = pickle.loads(sent)
    assert everyone is hvd.global_process_set
    assert copy.copy(everyone) is everyone
    assert (some.ranks, some.process_set_id) == ([0, 1], None)


def test_a_list_is_gone_through_before_the_first_error_is_raised(three_ranks: Any) -> None:
    hvd = three_ranks.hvd
    good, same, everyone, late = (hvd.ProcessSet(ranks) for ranks in ([0], [0], [2, 1, 0], [1]))
    with pytest.raises(ValueError, match=r"entry 1, ProcessSet\(process_set_id=None, ranks=\[0\].*repeats entry 0"):
        hvd.init(process_sets=[good, same, everyone, late])
    assert hvd.is_initialized()
    assert [s.process_set_id for s in (good, same, everyone, late)] == [1, None, None, 2]
    with pytest.raises(ValueError, match=r"entry 0, .*has all ranks \[0, 1, 2\]: use global_process_set"):
        hvd.init(process_sets=[everyone])
    hvd.init(process_sets=[late])
    assert late.process_set_id == 2
    with pytest.raises(ValueError, match=r"entry 0, .*is not registered; registered are \{0: "):
        hvd.init(process_sets=[hvd.ProcessSet([0, 1])])


def test_a_list_of_something_else_starts_nothing(three_ranks: Any) -> None:
    hvd = three_ranks.hvd
    with pytest.raises(ValueError, match=r"entry 1 is \[0, 1\] of type list; expected a ProcessSet"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), [0, 1]])
    with pytest.raises(ValueError, match="entry 0 is global_process_set, which always exists"):
        hvd.init(process_sets=[hvd.global_process_set])
    for no_list in (hvd.ProcessSet([0]), 3):
        with pytest.raises(ValueError, match="expected a list of ProcessSet objects or the string 'dynamic'"):
            hvd.init(process_sets=no_list)
    with pytest.raises(ValueError, match="'Static'"):
        hvd.init(process_sets="Static")
    assert not hvd.is_initialized()


def test_objects_lose_their_ids_with_the_session(three_ranks: Any) -> None:
    hvd = three_ranks.hvd
    static, added = hvd.ProcessSet([0]), hvd.ProcessSet([1])
    hvd.init(process_sets=[static])
    hvd.init(process_sets="dynamic")
    assert hvd.add_process_set(added) is added
    assert added.process_set_id == 2
    hvd.shutdown()
    assert (static.process_set_id, added.process_set_id) == (None, None)
    assert hvd.global_process_set.process_set_id == 0
    hvd.init(process_sets=[added])
    assert added.process_set_id == 1
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(torch.ones(1), process_set=static)


def test_removal_takes_the_id_from_the_object_first(three_ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hvd = three_ranks.hvd
    hvd.init(process_sets="dynamic")
    some = hvd.add_process_set([0, 1])
    other = hvd.ProcessSet([0, 1])
    other.process_set_id = some.process_set_id
    assert hvd.remove_process_set(some) is True
    assert some.process_set_id is None
    assert hvd.remove_process_set(some) is False
    with pytest.raises(ValueError, match="process set 1 does not exist"):
        other.rank()
    assert hvd.remove_process_set(other) is False
    monkeypatch.delenv(DYNAMIC)
    other.process_set_id = 1
    with pytest.raises(ValueError, match=f"remove_process_set: .*{DYNAMIC}=1"):
        hvd.remove_process_set(other)


@pytest.mark.parametrize(("value", "allowed"), [("1", True), ("TRUE", True), ("2", True), ("0", False), ("off", False)])
def test_the_variable_allows_changes_as_the_core_reads_it(
    value: str, allowed: bool, three_ranks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hvd = three_ranks.hvd
    hvd.init()
    monkeypatch.setenv(DYNAMIC, value)
    if allowed:
        assert hvd.add_process_set([0]).process_set_id == 1
    else:
        with pytest.raises(ValueError, match=DYNAMIC):
            hvd.add_process_set([0])


def test_each_set_counts_its_own_operations(three_ranks: Any) -> None:
    hvd, core = three_ranks.hvd, three_ranks.core
    hvd.init(process_sets="dynamic")
    some = hvd.add_process_set([0])
    for process_set in (hvd.global_process_set, some, some, hvd.global_process_set):
        hvd.allreduce(torch.ones(1), process_set=process_set)
    hvd.allreduce(torch.ones(1), name="named", process_set=some)
    core.refusing["broadcast.noname.3"] = ValueError("refused")
    with pytest.raises(ValueError, match="refused"):
        hvd.broadcast(torch.ones(1), 0, process_set=some)
    hvd.grouped_allreduce([torch.ones(1)], process_set=some)
    assert [(call.process_set, call.name.partition(".")[2]) for call in core.calls] == [
        (0, "noname.1"),
        (1, "noname.1"),
        (1, "noname.2"),
        (0, "noname.2"),
        (1, "named"),
        (1, "noname.3_1of1"),
    ]
    hvd.remove_process_set(some)
    hvd.allreduce(torch.ones(1), process_set=hvd.add_process_set([0]))
    assert core.names[-1] == "allreduce.noname.1"


def test_the_global_set_counts_anew_after_each_join(three_ranks: Any) -> None:
    hvd, core = three_ranks.hvd, three_ranks.core
    hvd.init(process_sets="dynamic")
    some = hvd.add_process_set([0])
    for joins in range(3):
        core.joins_so_far = joins
        for process_set in (hvd.global_process_set, some, hvd.global_process_set):
            hvd.allreduce(torch.ones(1), process_set=process_set)
    assert core.names == [
        f"allreduce.noname.{number}" for number in (1, 1, 2, "join1.1", 2, "join1.2", "join2.1", 3, "join2.2")
    ]
    core.refusing["allreduce.noname.join2.3"] = ValueError("refused")
    with pytest.raises(ValueError, match="refused"):
        hvd.allreduce(torch.ones(1))
    core.refusing.clear()
    hvd.allreduce(torch.ones(1))
    assert core.names[-1] == "allreduce.noname.join2.3"
    hvd.shutdown()
    core.joins_so_far = 0
    hvd.init()
    hvd.allreduce(torch.ones(1))
    assert core.names[-1] == "allreduce.noname.1"


def test_a_name_is_not_given_back_once_another_thread_has_the_next() -> None:
    names = AutomaticNames()
    others: list[str] = []

    class Looked(str):
        """Another thread runs when it has been looked at."""

        def endswith(self, *end: Any) -> bool:
            is_last = super().endswith(*end)
            others.append(names.make("other", 1))
            return is_last

    names.release(1, Looked(names.make("refused", 1)))
    assert [*others, names.make("next", 1)] == ["other.noname.2", "next.noname.3"]


def test_names_restart_and_are_given_back() -> None:
    names = AutomaticNames()
    assert [names.make("x", 0), names.make("y", 0), names.make("x", 5)] == ["x.noname.1", "y.noname.2", "x.noname.1"]
    names.release(0, "y.noname.2")
    assert names.make("z", 0) == "z.noname.2"
    refused, later = names.make("x", 0), names.make("x", 0)
    names.release(0, refused)  # a thread was refused its third when another had the fourth
    assert names.make("x", 0) not in (refused, later)
    names.forget(5)
    names.forget(6)
    assert names.make("x", 5) == "x.noname.1"
    names.on_session_start()
    assert names.make("x", 0) == "x.noname.1"
