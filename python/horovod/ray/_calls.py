"""The results of calls of several ranks, and which of their failures is the cause of the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RaySystemError, RayTaskError, UnserializableException

from horovod.common.exceptions import HorovodInternalError

__all__ = ["Place", "WorkerDiedError", "gather"]

# How long the cause is waited for once a call has failed. A rank that lost another raises within a second or two;
# Ray may take longer to find out that a process has died.
_WAIT_FOR_DEATH_S = 1.0
_WAIT_FOR_CAUSE_S = 10.0
# What Ray says here of an exception, and of a result, whose pickle cannot be loaded.
_UNREADABLE = (UnserializableException, RaySystemError)


class WorkerDiedError(RuntimeError):
    """The process of a rank has ended: no call reaches it any more."""


@dataclass(frozen=True)
class Place:
    """A rank, and the node that it is on once that is known."""

    rank: int
    node_id: str = ""
    hostname: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank}" + (f" on {self.hostname} (node {self.node_id})" if self.node_id else "")


def gather(
    refs: Sequence[Any], places: Sequence[Place], what: str = "", seconds: float | None = None, advice: str = ""
) -> list[Any]:
    """The results of `refs`, the calls of the ranks that `places` names.

    When one fails it does not wait for the others, which may never end. `what` was asked for within `seconds`, if
    there is a limit; `advice` is what may help.

    Raises:
        WorkerDiedError: A rank's process has died; its cause is Ray's error.
        ray.exceptions.RayTaskError: The exception that a rank has raised, also of that exception's own class. The
            failure of a rank that only lost another counts when there is no other.
        RuntimeError: What a rank has raised or returned cannot be read here, though the rank lives.
        TimeoutError: They have not answered in time.
    """
    place_of = dict(zip(refs, places, strict=True))
    results: dict[Any, Any] = {}
    failures: dict[Any, RayError] = {}
    deadline = None if seconds is None else time.monotonic() + seconds
    pending = list(refs)
    while pending:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, pending = ray.wait(pending, num_returns=1, timeout=timeout)
        if not ready:
            break
        try:
            results[ready[0]] = ray.get(ready[0])
        except RayError as error:
            if not failures or _is_echo(error) < min(map(_is_echo, failures.values())):
                wait = _WAIT_FOR_CAUSE_S if _is_echo(error) else _WAIT_FOR_DEATH_S
                deadline = time.monotonic() + wait
            failures[ready[0]] = error
            if _is_death(error):
                break
    if failures:
        _raise_cause({place_of[ref]: error for ref, error in failures.items()})
    if pending:
        late = ", ".join(str(place_of[ref].rank) for ref in pending)
        raise TimeoutError(f"{what}: no answer within {seconds} s of rank {late} of {len(refs)}; {advice}")
    return [results[ref] for ref in refs]


def _is_death(error: RayError) -> bool:
    return not isinstance(error, (RayTaskError, *_UNREADABLE))


def _is_echo(error: RayError) -> bool:
    """Whether it says no more than that another rank has failed."""
    return isinstance(error, RayTaskError) and isinstance(error.cause, HorovodInternalError)


def _raise_cause(failures: dict[Place, RayError]) -> None:
    place, error = min(failures.items(), key=lambda item: (not _is_death(item[1]), _is_echo(item[1]), item[0].rank))
    if _is_death(error):
        raise WorkerDiedError(f"{place} has died: {error}") from error
    if isinstance(error, _UNREADABLE):
        what = "raised" if isinstance(error, UnserializableException) else "returned"
        raise RuntimeError(f"what {place} has {what} cannot be read here: {error}") from error
    if sys.version_info >= (3, 11):
        error.add_note(f"raised by {place}")
    raise error
