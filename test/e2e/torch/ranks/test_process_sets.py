"""Process sets: static ones, and those that come and go."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd
from sets import DYNAMIC, evens_and_odds, start_again
from world import assert_same, assert_usable

pytestmark = pytest.mark.usefixtures("world_as_it_was")


@pytest.fixture
def dynamic(world_as_it_was: None) -> None:
    start_again("dynamic")


def ids_and_ranks() -> dict[int, list[int]]:
    table: dict[int, list[int]] = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
    return table


@pytest.mark.usefixtures("several_ranks")
def test_static_sets_have_ids_and_members() -> None:
    evens, odds = evens_and_odds()
    assert (evens.process_set_id, evens.size(), evens.rank()) == (None, None, None)
    start_again([evens, odds])
    everyone = list(range(hvd.size()))
    assert ids_and_ranks() == {0: everyone, 1: everyone[::2], 2: everyone[1::2]}
    assert (evens.process_set_id, odds.process_set_id) == (1, 2)
    assert (evens.size(), odds.size()) == (len(everyone[::2]), len(everyone[1::2]))
    mine, other = (evens, odds) if hvd.rank() % 2 == 0 else (odds, evens)
    assert mine.included()
    assert not other.included()
    assert mine.rank() == hvd.rank() // 2
    with pytest.raises(ValueError, match=f"rank {hvd.rank()} is not a member of process set"):
        other.rank()
    assert str(evens) == f"ProcessSet(process_set_id=1, ranks={everyone[::2]}, mpi_comm=None)"


@pytest.mark.usefixtures("several_ranks")
def test_a_repeated_or_global_set_is_an_error_but_horovod_runs() -> None:
    everyone = list(range(hvd.size()))
    for bad, reason in ((hvd.ProcessSet([0]), "repeats entry 0"), (hvd.ProcessSet(everyone), "use global_process_set")):
        first, last = hvd.ProcessSet([0]), hvd.ProcessSet([1])
        with pytest.raises(ValueError, match=f"entry 1, .*{reason}"):
            start_again([first, bad, last])
        assert hvd.is_initialized()
        assert (first.process_set_id, bad.process_set_id, last.process_set_id) == (1, None, 2)
        hvd.init(process_sets=[last, first])
        assert (first.process_set_id, last.process_set_id) == (1, 2)
        with pytest.raises(ValueError, match=r"entry 0, .*is not registered"):
            hvd.init(process_sets=[hvd.ProcessSet([0, 0])])
        assert_usable()


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("what", ["number", "content", "order"])
def test_ranks_that_give_different_sets_all_fail(what: str) -> None:
    lists = {
        "number": [[0]] if hvd.rank() == 0 else [],
        "content": [[0], [min(hvd.rank(), 1)]],
        "order": [[0], [1]] if hvd.rank() == 0 else [[1], [0]],
    }
    sets = [hvd.ProcessSet(ranks) for ranks in lists[what]]
    if what == "content" and hvd.rank() == 0:
        sets[1] = hvd.ProcessSet([0, 1]) if hvd.size() > 2 else hvd.ProcessSet([0])
    with pytest.raises(ValueError, match=r"process sets given to init\(\) differ.*rank 0"):
        start_again(sets)
    assert not hvd.is_initialized()
    hvd.init()
    assert ids_and_ranks() == {0: list(range(hvd.size()))}
    assert_usable()


def test_lists_that_are_no_sets_fail_on_every_rank() -> None:
    size = hvd.size()
    for ranks, reason in (
        ([0, size], f"rank {size} of a process set is not in 0 .. {size - 1}"),
        ([0, 0], "rank 0 is listed twice"),
        ([], "at least one rank"),
    ):
        with pytest.raises(ValueError, match=rf"process_sets\[0\]: .*{reason}"):
            start_again([hvd.ProcessSet(ranks)])
        assert not hvd.is_initialized()
        hvd.init()
        assert_usable()


def test_ids_end_with_the_session() -> None:
    mine = hvd.ProcessSet([0])
    if hvd.size() == 1:
        return
    start_again([mine])
    assert mine.process_set_id == 1
    start_again()
    assert mine.process_set_id is None
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(torch.ones(1), process_set=mine)
    start_again([mine])
    assert mine.process_set_id == 1


@pytest.mark.usefixtures("several_ranks", "dynamic")
def test_sets_are_added_and_removed_at_run_time() -> None:
    everyone = list(range(hvd.size()))
    first = hvd.add_process_set([0])
    second = hvd.ProcessSet([1])
    assert hvd.add_process_set(second) is second
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    for ranks, set_id in (([0], 1), (everyone, 0)):
        with pytest.raises(ValueError, match=f"exists already, with id {set_id}"):
            hvd.add_process_set(ranks)
    with pytest.raises(ValueError, match=f"rank {hvd.size()} of a process set is not in"):
        hvd.add_process_set([hvd.size()])
    again = hvd.ProcessSet([0])
    again.process_set_id = 1
    assert hvd.remove_process_set(first) is True
    assert first.process_set_id is None
    assert hvd.remove_process_set(first) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    with pytest.raises(ValueError, match="process set 1 does not exist"):
        again.rank()
    assert hvd.remove_process_set(again) is False
    assert ids_and_ranks() == {0: everyone, 2: [1]}
    assert hvd.remove_process_set(second) is True
    third, fourth = hvd.add_process_set([1]), hvd.add_process_set([0])
    assert (third.process_set_id, fourth.process_set_id) == (1, 2), "the ids that were freed first come back first"
    assert_usable()


def test_changes_need_dynamic_mode() -> None:
    with pytest.raises(ValueError, match=DYNAMIC):
        hvd.add_process_set([0])
    some = hvd.ProcessSet([0])
    some.process_set_id = 3
    with pytest.raises(ValueError, match=DYNAMIC):
        hvd.remove_process_set(some)
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match="init"):
        hvd.add_process_set([0])


@pytest.mark.usefixtures("several_ranks", "dynamic")
def test_a_rank_waits_until_all_want_the_same() -> None:
    """Two threads of rank 0 ask for two sets; the others ask for them later, in the same order."""
    if hvd.rank() == 0:
        added: list[hvd.ProcessSet] = []
        thread = threading.Thread(target=lambda: added.append(hvd.add_process_set([0])))
        thread.start()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()  # the others have not asked yet
        thread.join()
        assert added[0].process_set_id == 1
    else:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
        assert ids_and_ranks() == {0: list(range(hvd.size()))}
        assert hvd.add_process_set([0]).process_set_id == 1


@pytest.mark.usefixtures("several_ranks", "dynamic")
def test_removing_a_set_fails_what_its_members_did_not_all_submit() -> None:
    pair = [0, hvd.size() - 1]
    some = hvd.add_process_set(pair if hvd.size() > 2 else [0])
    set_id = some.process_set_id
    complete = incomplete = None
    if some.included():
        complete = hvd.allreduce_async(torch.ones(1000), name="complete", op=hvd.Sum, process_set=some)
    if hvd.rank() == 0 and some.size() > 1:
        incomplete = hvd.allreduce_async(torch.ones(2), name="incomplete", process_set=some)
    members = some.size()
    assert hvd.remove_process_set(some)
    if complete is not None:
        assert hvd.synchronize(complete)[0].item() == members
    if incomplete is not None:
        reason = f'Process set {set_id} was removed while "allreduce.incomplete" was pending'
        with pytest.raises(hvd.HorovodInternalError, match=reason):
            hvd.synchronize(incomplete)
    assert_usable()


def lanes() -> int:
    """How many threads of this process run collectives; one for each set that had any."""
    names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("hvd-lane") for name in names)


@pytest.mark.usefixtures("several_ranks", "dynamic")
def test_sets_may_come_and_go_many_times() -> None:
    for step in range(30):
        ranks = [r for r in range(hvd.size()) if (step >> r) & 1] or [step % hvd.size()]
        if len(ranks) == hvd.size():
            continue
        some = hvd.add_process_set(ranks)
        assert some.process_set_id == 1
        if some.included():
            total = hvd.allreduce(torch.full((100,), float(step)), name="x", op=hvd.Sum, process_set=some)
            assert_same(total, torch.full((100,), float(step * len(ranks))))
        assert hvd.remove_process_set(some)
    assert_usable()
    end = time.monotonic() + 20.0
    while lanes() > 1 and time.monotonic() < end:  # they end by themselves, a moment after the removal
        time.sleep(0.01)
    assert lanes() <= 1, "lanes of removed sets stay"


def test_a_session_of_one_rank_has_sets_too() -> None:
    if hvd.size() > 1:
        return
    start_again("dynamic")
    with pytest.raises(ValueError, match="exists already, with id 0"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="at least one rank"):
        hvd.add_process_set([])
    assert hvd.remove_process_set(hvd.global_process_set) is False
