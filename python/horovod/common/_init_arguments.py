"""The arguments of init(), checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horovod import _env
from horovod.common.process_sets import ProcessSet, global_process_set


def ranks_of_comm(comm: Any) -> Sequence[int]:
    """The ranks that init's `comm` names; empty for all. ValueError for what an MPI-free build cannot take."""
    if comm is None:
        return ()
    if not isinstance(comm, Iterable):
        raise ValueError(
            f"init(comm={comm!r}): a communicator object needs MPI, which this build does not have; "
            "leave comm out or give a list of ranks"
        )
    ranks = list(comm)
    for rank in ranks:
        if not isinstance(rank, int):
            raise ValueError(f"init(comm=...): ranks must be ints, found {rank!r} of type {type(rank).__name__}")
    return ranks


def listed_process_sets(process_sets: Sequence[ProcessSet] | str | None) -> Sequence[ProcessSet]:
    """The process sets that init() is to register; for "dynamic" none, and sets may change from now on."""
    if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
        _env.allow_dynamic_process_sets()
        return ()
    if isinstance(process_sets, str) or not isinstance(process_sets or (), Iterable):
        raise ValueError(
            f"init(process_sets={process_sets!r}): expected a list of ProcessSet objects or the string 'dynamic'"
        )
    sets = list(process_sets or ())
    for index, process_set in enumerate(sets):
        if not isinstance(process_set, ProcessSet):
            raise ValueError(
                f"init(process_sets=...): entry {index} is {process_set!r} of type {type(process_set).__name__}; "
                "expected a ProcessSet"
            )
        if process_set is global_process_set:
            raise ValueError(f"init(process_sets=...): entry {index} is global_process_set, which always exists")
    return sets
