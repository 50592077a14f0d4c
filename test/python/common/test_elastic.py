"""The state of elastic training and its loop, without ranks: what each exception leads to, and in which order."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from horovod.common import elastic
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import HostUpdateResult


def own(obj: Any) -> Any:
    """The broadcast of a world of one."""
    return obj


class Logged(elastic.State):
    """Writes down what is asked of it."""

    def __init__(self) -> None:
        super().__init__(own, lambda: 0)
        self.log: list[str] = []

    def save(self) -> None:
        self.log.append("save")

    def restore(self) -> None:
        self.log.append("restore")

    def sync(self) -> None:
        self.log.append("sync")

    def reset(self) -> None:
        self.log.append("reset")


def train(*outcomes: Any) -> Logged:
    """A run whose function raises or returns the outcomes, one a call; each call and each restart is logged."""
    state = Logged()
    state.register_reset_callbacks([lambda: state.log.append("callback 1"), lambda: state.log.append("callback 2")])
    left = list(outcomes)

    def func(given: Logged, word: str, *, end: str) -> str:
        given.log.append(f"func {word}{end}")
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    state.log.append(elastic.run_fn(func, lambda: state.log.append("restart"))(state, "go", end="!"))
    assert elastic.notification_manager._listeners == []
    return state


AFTER_RESET = ["restart", "reset", "callback 1", "callback 2"]


def test_a_run_without_failures() -> None:
    assert train("done").log == ["sync", "func go!", "done"]


def test_a_failed_collective_returns_to_the_last_commit() -> None:
    expected = ["sync", "func go!", "restore", *AFTER_RESET, "sync", "func go!", "done"]
    assert train(HorovodInternalError("lost"), "done").log == expected


@pytest.mark.parametrize("skip_sync", [False, True])
def test_changed_hosts_leave_the_state_as_it_is(skip_sync: bool) -> None:
    sync = [] if skip_sync else ["sync"]
    expected = ["sync", "func go!", *AFTER_RESET, *sync, "func go!", "done"]
    assert train(HostsUpdatedInterrupt(skip_sync), "done").log == expected


def test_a_failure_after_a_change_without_sync_is_synchronised() -> None:
    log = train(HostsUpdatedInterrupt(True), HorovodInternalError("lost"), "done").log
    assert log == ["sync", "func go!", *AFTER_RESET, "func go!", "restore", *AFTER_RESET, "sync", "func go!", "done"]


def test_other_exceptions_pass_and_end_the_listening() -> None:
    def func(state: Logged) -> None:
        assert elastic.notification_manager._listeners == [state]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        elastic.run_fn(func, lambda: None)(Logged())
    assert elastic.notification_manager._listeners == []


def test_what_fails_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    with pytest.raises(HorovodInternalError, match=r"4 times without a commit .* shapes differ"):
        train(*[HorovodInternalError("shapes differ")] * 4, "done")
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")  # there the launcher counts
    assert train(*[HorovodInternalError("lost")] * 9, "done").log[-1] == "done"


def test_a_commit_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    calls = []

    def func(state: Logged) -> str:
        calls.append(1)
        state.commit()
        if len(calls) < 10:
            raise HorovodInternalError("lost")
        return "done"

    assert elastic.run_fn(func, lambda: None)(Logged()) == "done"


def test_objects_as_attributes() -> None:
    state = elastic.ObjectState(own, lambda: 0, epoch=1, rows=[1])
    state.epoch, state.rows = 2, [2]
    state.restore()
    assert (state.epoch, state.rows) == (1, [1])
    state.epoch = 3
    state.save()
    state.epoch = 4
    state.restore()
    assert state.epoch == 3


def test_sync_takes_what_rank_0_saved() -> None:
    given: list[Any] = []

    def from_rank_0(obj: Any) -> Any:
        given.append(obj)
        return {"epoch": 7}

    state = elastic.ObjectState(from_rank_0, lambda: 1, epoch=1)
    state.epoch = 2
    state.sync()
    assert given == [{"epoch": 1}]
    assert state.epoch == 7
    state.epoch = 8
    state.restore()
    assert state.epoch == 7
    elastic.ObjectState(from_rank_0, lambda: 1).sync()
    assert len(given) == 1  # nothing to send


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed, HostUpdateResult.removed], True),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([HostUpdateResult.mixed], False),
    ],
)
def test_a_commit_saves_then_tells_of_hosts_once(updates: list[int], skip_sync: bool) -> None:
    state = Logged()
    state.commit()
    for timestamp, update in enumerate(updates, 1):
        elastic.notification_manager.register_listener(state)
        elastic.notification_manager.handle_hosts_updated(timestamp, update)
        elastic.notification_manager.remove_listener(state)
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.commit()
    assert interrupt.value.skip_sync is skip_sync
    assert state.log == ["save", "save"]
    state.commit()
    state.on_hosts_updated(1, HostUpdateResult.added)  # older than what was said
    state.check_host_updates()
    state.on_hosts_updated(9, HostUpdateResult.added)
    state.on_reset()  # the new session knows its hosts
    state.check_host_updates()


def test_commits_are_progress_of_which_the_launcher_hears(fake_uninitialized: Any, monkeypatch: Any) -> None:
    """Rank 0 is whose training has come furthest, and who fails again and again is given up only without progress."""
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    hvd, core = fake_uninitialized.hvd, fake_uninitialized.core
    fresh = sys.modules["horovod.common.elastic"]
    hvd.init()

    def func(state: Any) -> str:
        if len(core.progress) < 3:
            state.commit()
            state.commit()
            raise hvd.HorovodInternalError("lost")
        return "done"

    assert fresh.run_fn(func, fresh.restart_session)(fresh.ObjectState(own, hvd.rank, epoch=0)) == "done"
    assert core.progress == [0, 3, 5]  # the first is what all ranks are given


def test_all_ranks_do_what_rank_0_heard() -> None:
    state = Logged()
    state._bcast_object = lambda _: (0.0, 5.0, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state._bcast_object = own
    state.check_host_updates()


def test_process_sets_that_do_not_fit_a_round_are_left_out(fake_uninitialized: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    hvd, core = fake_uninitialized.hvd, fake_uninitialized.core
    restart = sys.modules["horovod.common.elastic"].restart_session  # of the fresh import
    sets = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([0, 1]), hvd.ProcessSet([1])]
    core.world = 3
    hvd.init(process_sets=sets)
    for world, ids in ((2, [None, None, 1]), (1, [None, None, None]), (3, [1, 2, 3])):
        core.world = world
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            restart()
            hvd.init(process_sets=sets)  # of another module
        assert [one.process_set_id for one in sets] == ids
        assert ["left out" in str(one.message) for one in caught] == [True] * (0 if world == 3 else 2)
    core.failing["allreduce.elastic.agree"] = sys.modules["horovod.common.exceptions"].HorovodInternalError("lost")
    sessions = core.sessions
    with pytest.raises(ValueError, match="4 times a rank was lost"):
        restart()
    assert (core.sessions, hvd.is_initialized()) == (sessions + 4, False)
    with pytest.raises(ValueError, match=r"entry 0 has ranks \[-1\]"):
        hvd.init(process_sets=[hvd.ProcessSet([-1])])
