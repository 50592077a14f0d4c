"""init, shutdown, topology and build information: what every framework module offers under the same names."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _env
from horovod._common import uncaught
from horovod._common.native import core
from horovod.common import _elastic_sets
from horovod.common._build_information import BuildInformation
from horovod.common._init_arguments import listed_process_sets, ranks_of_comm
from horovod.common.process_sets import (
    ProcessSet,
    _forget_process_sets,
    _init_process_sets,
    _setup,
)

__all__ = ["HorovodBasics"]


class HorovodBasics(BuildInformation):
    """The functions that do not depend on a framework, for the one session of this process.

    horovod._common.session has the instance whose bound methods the framework modules re-export: the first init()
    starts the session, and a later one through another module uses it. `pkg_path` and `ext_names` are accepted for
    compatibility: there is one native library for all frameworks.
    """

    Average: int = core.REDUCE_AVERAGE
    Sum: int = core.REDUCE_SUM
    Adasum: int = core.REDUCE_ADASUM
    Min: int = core.REDUCE_MIN
    Max: int = core.REDUCE_MAX
    Product: int = core.REDUCE_PRODUCT

    def __init__(self, pkg_path: str | None = None, *ext_names: str) -> None:
        del pkg_path, ext_names
        self._on_init: list[Callable[[bool], None]] = []
        self._on_shutdown: list[Callable[[], None]] = []
        self._init_pid = -1
        self._init_turn = threading.RLock()
        self._end_turn = threading.RLock()
        os.register_at_fork(after_in_child=self._begin_turns_anew)
        self.initial_process_sets: Sequence[ProcessSet] = ()  # those given to the init() that began the session
        self.progress = 0  # how far elastic training has come: commits that this process has made or was given

    @property
    def MPI_LIB_CTYPES(self) -> ctypes.CDLL:  # noqa: N802
        """The native library, by ctypes: its C functions answer as those here (docs/differences.md, row 138)."""
        return ctypes.CDLL(core.__file__)

    def _add_hooks(self, on_init: Callable[[bool], None], on_shutdown: Callable[[], None]) -> None:
        """Registers what a module does after init(), with whether that began a session, and after shutdown()."""
        self._on_init.append(on_init)
        self._on_shutdown.append(on_shutdown)

    # Lifecycle

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Starts the session and blocks until all ranks are connected. Does nothing if the session is running;
        while another thread starts it, waits for that.

        Arguments:
            comm: None, or a list of all ranks. A list of some ranks warns: all ranks take part.
            process_sets: ProcessSet objects to register, the same on all ranks; or "dynamic", which allows
                add_process_set() later.

        ValueError: other ranks cannot be reached, the environment is wrong, or ranks give different sets; then nothing
        has started. A set that repeats an earlier one or has all ranks is a ValueError too, but Horovod is initialised
        then, and init() with a corrected list only looks the sets up. In an elastic job a set that has all ranks, or
        ranks beyond size(), is left out with a warning: another round may have it. KeyboardInterrupt on Ctrl-C.
        """
        with self._init_turn:
            with self._end_turn:
                pass  # what another thread ends has ended
            self._init(ranks_of_comm(comm), listed_process_sets(process_sets))

    def _begin_turns_anew(self) -> None:
        self._init_turn = threading.RLock()  # the threads that had the old ones are not in this child
        self._end_turn = threading.RLock()

    def _init(self, ranks: Sequence[int], sets: Sequence[ProcessSet]) -> None:
        started = not core.is_initialized()
        if started:
            self._init_pid = os.getpid()
            self._register_exit()  # a daemon thread may still wait for the others when the process ends
        if started and _env.elastic():
            _elastic_sets.start(sets, self.progress)
            _env.apply(_rank_variables())
        else:
            core.init(process_sets=[process_set.ranks or [] for process_set in sets], progress=self.progress)
        if started:
            self.initial_process_sets = sets
        _setup(self)
        uncaught.install()
        self._register_exit()  # before what was registered meanwhile
        _call_all(functools.partial(hook, started) for hook in self._on_init)
        if ranks and sorted(ranks) != list(range(core.size())):
            warnings.warn(
                f"horovod init(comm={list(ranks)}): sub-communicators are not built yet; "
                f"all {core.size()} ranks that the launcher started take part",
                stacklevel=3,
            )
        _init_process_sets(_elastic_sets.fitting(sets) if _env.elastic() else sets)

    def shutdown(self) -> None:
        """Ends the session on all ranks: their pending operations fail with HorovodInternalError.

        May be called at any time and more than once, also before init(); init() may follow. While another thread ends
        the session, waits for that: the end of the process would end a daemon thread in the middle of it.
        """
        with self._end_turn:
            core.shutdown()
            _forget_process_sets()
            _call_all(self._on_shutdown)

    def _register_exit(self) -> None:
        atexit.unregister(self._shutdown_at_exit)
        atexit.register(self._shutdown_at_exit)

    def _shutdown_at_exit(self) -> None:
        # A forked child that ends by sys.exit() runs the parent's exit functions, and must not end its session.
        if os.getpid() == self._init_pid:
            uncaught.announce_last()
            core.announce_exit()
            self.shutdown()
            core.let_waits_return()
            core.leave_job()

    def is_initialized(self) -> bool:
        """Whether init() was called and shutdown() was not; True also after a failure of the session. Never raises.

        A child that was forked from a rank has the numbers of that. Of a rank of several it says True as long as it
        lives, also after shutdown(), for it can't call init(); of the only rank it says False, for it can.
        """
        return core.is_initialized() or core.is_child_of_rank()

    # Topology. Each raises ValueError unless initialised.

    def rank(self) -> int:
        """This process' number among all ranks, from 0 to size() - 1. ValueError before init() and after shutdown()."""
        return core.rank()

    def size(self) -> int:
        """The number of ranks: of processes that train together. ValueError before init() and after shutdown()."""
        return core.size()

    def local_rank(self) -> int:
        """This process' number among the ranks of its host, from 0. ValueError before init() and after shutdown()."""
        return core.local_rank()

    def local_size(self) -> int:
        """The number of ranks on this host. ValueError before init() and after shutdown()."""
        return core.local_size()

    def cross_rank(self) -> int:
        """This host's number among the hosts that have a rank with this local rank. ValueError before init() and after
        shutdown().
        """
        return core.cross_rank()

    def cross_size(self) -> int:
        """The number of hosts that have a rank with this local rank. ValueError before init() and after shutdown()."""
        return core.cross_size()

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of ranks. ValueError before init() and after shutdown()."""
        return core.is_homogeneous()

    # Timeline

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Rank 0 writes a timeline to `file_path` from now on: docs/timeline.md says what is in it.

        With `mark_cycles` also when rank 0 decides what runs. The file is made anew; what was written elsewhere ends. A
        path that is written to already changes nothing, and one that cannot be written is an error in the log. Nothing
        on other ranks. ValueError before init(), and unless HOROVOD_TIMELINE is set (to DYNAMIC, or to a file).
        """
        if not core.is_initialized():
            raise ValueError("start_timeline: Horovod is not initialised; call init() first")
        if _env.get("HOROVOD_TIMELINE") is None:
            raise ValueError(
                "start_timeline: HOROVOD_TIMELINE is not set; set it to DYNAMIC, or to a file, before init()"
            )
        core.start_timeline(os.fspath(file_path), bool(mark_cycles))

    def stop_timeline(self) -> None:
        """Ends the timeline that is written, also HOROVOD_TIMELINE's; the file is complete then. Nothing without one.
        ValueError before init().
        """
        if not core.is_initialized():
            raise ValueError("stop_timeline: Horovod is not initialised; call init() first")
        core.stop_timeline()

    # Process sets, as the Python classes use them

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Process set id -> sorted global ranks, the global set included."""
        return core.process_sets()

    def _add_process_set(self, ranks: Sequence[int]) -> int:
        return core.add_process_set(ranks)

    def _remove_process_set(self, process_set_id: int) -> bool:
        """False if there is no such set."""
        if process_set_id not in core.process_sets():
            return False
        core.remove_process_set(process_set_id)
        return True

    def _process_set_size(self, process_set_id: int) -> int:
        return core.process_set_size(process_set_id) or len(self._ranks_of_set(process_set_id))  # which raises

    def _process_set_rank(self, process_set_id: int) -> int:
        ranks = self._ranks_of_set(process_set_id)
        own = core.rank()
        if own not in ranks:
            raise ValueError(f"rank {own} is not a member of process set {process_set_id} with ranks {ranks}")
        return ranks.index(own)

    def _ranks_of_set(self, process_set_id: int) -> list[int]:
        core.rank()  # raises ValueError unless initialised
        sets = core.process_sets()
        if process_set_id not in sets:
            raise ValueError(f"process set {process_set_id} does not exist; registered ids are {sorted(sets)}")
        return sets[process_set_id]


def _rank_variables() -> dict[str, str | None]:
    """What the launcher set when this process started, as it is in this session."""
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    return {f"HOROVOD_{name.upper()}": str(getattr(core, name)()) for name in names}


def _call_all(hooks: Iterable[Callable[[], None]]) -> None:
    """Calls all, even if one fails; then raises the first error."""
    error: BaseException | None = None
    for hook in hooks:
        try:
            hook()
        except BaseException as raised:
            error = error or raised
    if error is not None:
        raise error
