"""The TensorFlow module's share of the session."""

from __future__ import annotations

from horovod._common.watched_basics import WatchedBasics
from horovod.common import util
from horovod.common.process_sets import ProcessSet, _setup

basics = WatchedBasics(__file__, "mpi_lib")

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
