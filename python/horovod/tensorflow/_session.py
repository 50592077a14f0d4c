"""The TensorFlow module's share of the session."""

from __future__ import annotations

from horovod._common.session import basics
from horovod._common.session_watch import watch_interrupts
from horovod.common import util
from horovod.common.process_sets import ProcessSet

__all__ = ["basics", "check_num_rank_power_of_2", "set_id", "set_size"]

watch_interrupts()


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
