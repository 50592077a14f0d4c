"""The TensorFlow module's share of the session."""

from __future__ import annotations

from horovod._common.calls import set_id
from horovod._common.session import basics
from horovod._common.session_watch import watch_interrupts
from horovod.common import util
from horovod.common.process_sets import ProcessSet

__all__ = ["basics", "check_num_rank_power_of_2", "set_id", "set_size"]

watch_interrupts()


def set_size(process_set: ProcessSet, caller: str) -> int:
    """The number of ranks of a set. ValueError before init(), and for a set that is not registered."""
    return basics._process_set_size(set_id(process_set, caller))


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether the number of ranks `num_rank` is a power of two: 1, 2, 4, 8, ..."""
    return util.num_rank_is_power_2(num_rank)
