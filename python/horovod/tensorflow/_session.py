"""The TensorFlow module's share of the session."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from horovod.common import util
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, _setup
from horovod.tensorflow._interrupt import InterruptWatch


class TensorFlowBasics(HorovodBasics):
    """The session, with Ctrl-C for a main thread that waits inside TensorFlow."""

    def __init__(self, pkg_path: str | None = None, *ext_names: str) -> None:
        super().__init__(pkg_path, *ext_names)
        self._watch: InterruptWatch | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        super().init(comm, process_sets)
        self.watch_interrupts()

    def shutdown(self) -> None:
        super().shutdown()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def watch_interrupts(self) -> None:
        """From the main thread; elsewhere nobody may ask to be told of signals, and Ctrl-C waits for the operation."""
        if self._watch is None and threading.current_thread() is threading.main_thread():
            self._watch = InterruptWatch()

    def _after_fork(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave_child()


basics = TensorFlowBasics(__file__, "mpi_lib")

_setup(basics)
if basics.is_initialized():  # by another framework's module
    basics.watch_interrupts()

handle_average_backwards_compatibility = util.get_average_backwards_compatibility_fun(basics)


def set_id(process_set: ProcessSet, caller: str) -> int:
    """The id that ops carry. ValueError for a set that is not registered."""
    if process_set.process_set_id is None:
        raise ValueError(f"{caller}: {process_set} is not registered; use init(process_sets=...) or add_process_set()")
    return process_set.process_set_id


def set_size(process_set: ProcessSet, caller: str) -> int:
    """How many ranks the set has now. ValueError unless initialised and registered."""
    return basics._process_set_size(set_id(process_set, caller))


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether `num_rank` is a power of two, which Adasum wants."""
    return util.num_rank_is_power_2(num_rank)
