"""ProcessSet: a subset of the ranks that runs collectives among itself.

All ranks register a set together: in init(process_sets=[...]), or with add_process_set() in a job that allows that. The
core holds the table of ids and ranks; a ProcessSet object only refers to an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, SupportsIndex
from weakref import WeakSet

from horovod import _env

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


class _Basics(Protocol):
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]: ...
    def _process_set_size(self, process_set_id: int) -> int: ...
    def _process_set_rank(self, process_set_id: int) -> int: ...
    def _add_process_set(self, ranks: Sequence[int]) -> int: ...
    def _remove_process_set(self, process_set_id: int) -> bool: ...


_basics: _Basics | None = None


def _required_basics() -> _Basics:
    if _basics is None:
        raise ValueError("Horovod is not initialised; import a framework module such as horovod.torch and call init()")
    return _basics


class ProcessSet:
    """The ranks that take part in an operation. Compared by identity.

    `ranks_or_comm`: the global ranks, an iterable of ints. ValueError for anything else: communicators need MPI.
    Attributes: `ranks`, sorted; `process_set_id`, an int, or None while the set is not registered with all ranks.

    >>> ProcessSet([2, 0]).ranks
    [0, 2]
    """

    __slots__ = ("__weakref__", "mpi_comm", "process_set_id", "ranks")

    process_set_id: int | None
    ranks: list[int] | None
    mpi_comm: Any

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        self.process_set_id = None
        self.mpi_comm = None
        if not isinstance(ranks_or_comm, Iterable):
            raise ValueError(
                f"ProcessSet({ranks_or_comm!r}): a communicator needs MPI, which this build does not have; "
                "give an iterable of ranks"
            )
        ranks = list(ranks_or_comm)
        for rank in ranks:
            if not isinstance(rank, int):
                raise ValueError(f"ProcessSet: ranks must be ints, found {rank!r} of type {type(rank).__name__}")
        self.ranks = sorted(ranks)

    def _invalidate(self) -> None:
        self.process_set_id = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        return self  # compared by identity: a copy of what refers to a set refers to the same set

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # What refers to all ranks does so in another process, too, whose ranks are others.
        return "global_process_set" if self is global_process_set else super().__reduce_ex__(protocol)

    def size(self) -> int | None:
        """The number of members; None if the set is not registered. ValueError before init()."""
        if self.process_set_id is None:
            return None
        return _required_basics()._process_set_size(self.process_set_id)

    def rank(self) -> int | None:
        """This process' number within the set, from 0; None if it is not registered. ValueError for a non-member."""
        if self.process_set_id is None:
            return None
        return _required_basics()._process_set_rank(self.process_set_id)

    def included(self) -> bool | None:
        """Whether this process is a member; None if the ranks are not known. ValueError before init()."""
        if self.ranks is None:
            return None
        return _required_basics().rank() in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0

# The objects that got an id in this session: the next session may give the ids to other sets.
_registered: WeakSet[ProcessSet] = WeakSet()

_removal_listeners: list[Callable[[int], None]] = []


def _on_removal(listener: Callable[[int], None]) -> None:
    """Registers what a framework module does with the id of a removed set. Called once, when it is imported."""
    _removal_listeners.append(listener)


def _setup(basics: _Basics) -> None:
    """ProcessSet objects query `basics` from now on: the object whose init() was called last."""
    global _basics  # noqa: PLW0603  set at import of a framework module and by init() only
    _basics = basics


def _register(process_set: ProcessSet, set_id: int) -> None:
    process_set.process_set_id = set_id
    _registered.add(process_set)


def _forget_process_sets() -> None:
    """After shutdown(): removes the ids of the ended session from the objects that have them."""
    for process_set in list(_registered):
        process_set._invalidate()
    _registered.clear()


def _init_process_sets(process_sets: Sequence[ProcessSet]) -> None:
    """After init(): sets the ranks of the global set and the ids of the given sets.

    Processes the whole list before it raises ValueError for the first wrong entry, so that the others can be used.
    """
    by_id = _required_basics()._get_process_set_ids_and_ranks()
    everyone = by_id[0]
    global_process_set.ranks = list(everyone)
    ids = {tuple(ranks): set_id for set_id, ranks in by_id.items()}
    first_entry: dict[int, int] = {}
    problem = ""
    for index, process_set in enumerate(process_sets):
        set_id = ids.get(tuple(process_set.ranks or ()))
        found = ""
        if set_id is None:
            found = f"is not registered; registered are {by_id}. Sets are registered by the init() that starts Horovod"
        elif set_id == 0:
            found = f"has all ranks {everyone}: use global_process_set"
        elif set_id in first_entry:
            found = f"repeats entry {first_entry[set_id]}"
        else:
            first_entry[set_id] = index
            _register(process_set, set_id)
        if found:
            if process_set is not global_process_set:
                process_set._invalidate()
            problem = problem or f"init(process_sets=...): entry {index}, {process_set}, {found}"
    if problem:
        raise ValueError(problem)


def _temp_process_set_object(process_set_id: int) -> ProcessSet:
    """A ProcessSet object for a registered id."""
    found = ProcessSet([])
    found.process_set_id = process_set_id
    found.ranks = _required_basics()._get_process_set_ids_and_ranks().get(process_set_id)
    return found


def _check_dynamic(caller: str) -> None:
    _required_basics().rank()  # raises ValueError unless initialised
    if not _env.dynamic_process_sets():
        raise ValueError(
            f"{caller}: process sets can only change at run time after init(process_sets='dynamic') "
            "or with HOROVOD_DYNAMIC_PROCESS_SETS=1"
        )


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a set of ranks with all ranks and returns its ProcessSet.

    `process_set`: a ProcessSet, which gets its id, or an iterable of global ranks. Every rank of the job, member or
    not, must call this with the same ranks; it blocks until all have. Needs init(process_sets="dynamic").

    ValueError: the job is not dynamic; Horovod is not initialised, or is shut down meanwhile; ranks do not exist or
    occur twice; or, on all ranks, a set with these ranks exists. HorovodInternalError: a rank is lost.
    """
    wanted = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    _check_dynamic("add_process_set")
    _register(wanted, _required_basics()._add_process_set(wanted.ranks or []))
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes the registered `process_set` from all ranks. Returns False for the global set and an unregistered one.

    Every rank of the job must call this for the same set; it blocks until all have. Operations of the set that not all
    members have submitted by then fail with HorovodInternalError; the others still run.

    ValueError: the job was not started with init(process_sets="dynamic"), or Horovod is not initialised.
    HorovodInternalError: a rank is lost.
    """
    set_id = process_set.process_set_id
    if set_id is None or set_id == 0:
        return False
    _check_dynamic("remove_process_set")
    process_set._invalidate()
    _registered.discard(process_set)
    removed = _required_basics()._remove_process_set(set_id)
    for listener in _removal_listeners:
        listener(set_id)
    return removed
