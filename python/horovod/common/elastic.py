"""What elastic training saves, restores and synchronises, and the loop that starts it again after a change.

The frameworks' modules (`horovod.torch.elastic` and its like) bind these to their broadcasts and to shutdown() and
init(). Scripts written for elastic training run with them in a job whose ranks never change, too: there the loop starts
training again when a collective failed and every process is still alive.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterable
from typing import Any

from horovod import _env
from horovod._common.session import basics
from horovod.common import _elastic_sets
from horovod.common._elastic_signals import leaving_later
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.discovery import HostUpdateResult
from horovod.runner.elastic.worker import WorkerNotificationManager

__all__ = ["ObjectState", "State", "notification_manager", "restart_session", "run_fn"]

notification_manager = WorkerNotificationManager()

# In a job whose ranks never change, nobody else counts how often training began again at the same place.
_MAX_RESETS_IN_PLACE = 3


Broadcast = Callable[[Any], Any]  # gives every rank a copy of rank 0's object


class State:
    """What has to survive when a collective fails or ranks change. Subclasses save, restore and synchronise it.

    `bcast_object(obj)` gives every rank rank 0's object; `get_rank()` is this rank's number.
    """

    def __init__(self, bcast_object: Broadcast, get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._updates: queue.Queue[tuple[float, int]] = queue.Queue()  # on_hosts_updated() may come from any thread
        self._seen_updates = 0.0
        self._checks = 0  # how often all ranks met in check_host_updates(), which a commit ends with
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """`callbacks` are called, in this order, after each reset: ranks, and their number, may have changed."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """After the session has begun anew: forgets what was heard of hosts, then reset() and the callbacks."""
        self._updates = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Hosts changed at `timestamp`, as HostUpdateResult `update_res` says; the next commit tells all ranks."""
        self._updates.put((timestamp, update_res))

    def commit(self) -> None:
        """save(), then check_host_updates(). Training goes on from here after a failure. All ranks call it."""
        self.save()
        basics.progress += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks together, when rank 0 has heard of hosts since it last asked.

        All ranks call it: rank 0's answer counts.
        """
        notification_manager.poll()
        seen, latest, result = self._seen_updates, self._seen_updates, HostUpdateResult.no_update
        while True:
            try:
                timestamp, update = self._updates.get_nowait()
            except queue.Empty:
                break
            if timestamp > seen:
                latest = max(latest, timestamp)
                result |= HostUpdateResult(update)
        seen, latest, result = self._bcast_object((seen, latest, result))
        self._checks += 1
        self._seen_updates = latest
        if latest > seen:
            raise HostsUpdatedInterrupt(skip_sync=result == HostUpdateResult.removed)

    def save(self) -> None:
        """Takes a copy of the state, in memory, to which restore() returns."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to what the last save() took."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank rank 0's state. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """What a subclass does when ranks may have changed; nothing here."""


class ObjectState(State):
    """Python objects as attributes: `ObjectState(bcast_object, get_rank, epoch=0, batch=0)`.

    The values at save() are remembered as they are, not copied.
    """

    def __init__(self, bcast_object: Broadcast, get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._assign_saved()

    def save(self) -> None:
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        self._assign_saved()

    def sync(self) -> None:
        """Every rank's attributes become those that rank 0 saved last."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._assign_saved()

    def _assign_saved(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Wraps `func(state, ...)`: the wrapper gives all ranks rank 0's state, calls `func` and gives what that gives.

    After a HorovodInternalError it restores the last commit, after a HostsUpdatedInterrupt it leaves the state as it
    is; then `reset()` begins a new session, and `func` is called again. Other exceptions pass. In an elastic job rank 0
    is a process whose training has come furthest, and all ranks synchronise, or none does. Where ranks cannot
    change (HOROVOD_ELASTIC is not set), the HorovodInternalError passes too when `func` has failed four times without
    a commit between: it would fail for ever.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            with leaving_later():
                return train(state, *args, **kwargs)
        finally:
            notification_manager.remove_listener(state)

    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        checks, in_place, skip_sync = _checks_of(state), 0, False
        while True:
            try:
                _synchronise(state, skip_sync)
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                in_place = in_place + 1 if checks == _checks_of(state) else 1
                checks = _checks_of(state)
                if checks is not None and in_place > _MAX_RESETS_IN_PLACE and not _env.elastic():
                    raise HorovodInternalError(
                        f"training failed {in_place} times without a commit between; the last time: {error}"
                    ) from error
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            reset()
            state.on_reset()

    return wrapper


def _synchronise(state: Any, skip_sync: bool) -> None:
    """state.sync(), unless it may be left out: in an elastic job on all ranks or on none, whatever each has met."""
    if not (_env.elastic() and basics.is_initialized()):
        if not skip_sync:
            state.sync()
        return
    someone_needs_it, furthest = _elastic_sets.largest(0 if skip_sync else 1, basics.progress)
    if someone_needs_it:
        state.sync()
        basics.progress = max(furthest, 1)


def _checks_of(state: Any) -> int | None:
    """How far training has come; None for a state that is none of ours and does not count."""
    checks = getattr(state, "_checks", None)
    return checks if isinstance(checks, int) else None


def restart_session() -> None:
    """Ends the session and begins the next: its ranks are those of then, its process sets init()'s that fit them."""
    process_sets = basics.initial_process_sets
    basics.shutdown()
    basics.init(process_sets=process_sets)
