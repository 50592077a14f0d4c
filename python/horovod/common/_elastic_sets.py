"""The process sets of an elastic job: those of the sets given to init() that the ranks of this round can have."""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from collections.abc import Sequence

from horovod._common.calls import CPU, Call
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet

__all__ = ["largest", "start"]

_MAX_STARTS = 4  # of a session, while ranks are lost as it begins


def largest(*numbers: int) -> list[int]:
    """The largest of each number on any rank."""
    array = (ctypes.c_int64 * len(numbers))(*numbers)
    data = ctypes.addressof(array)
    tensor = (data, data, (len(numbers),), core.DTYPE_INT64, CPU)
    call = Call(core.OP_ALLREDUCE, "allreduce").named("allreduce.elastic.agree")
    core.enqueue(call, tensor, (core.REDUCE_MAX, 1.0, 1.0, 0), array).wait_in_callback()
    return list(array)


def start(sets: Sequence[ProcessSet], progress: int) -> None:
    """Begins the session and registers those of `sets` that fit the ranks of this round: how many is known only then.

    ValueError if the lists differ between ranks, or a list is no set; then nothing has started.
    """
    lists = [tuple(process_set.ranks or ()) for process_set in sets]
    for index, ranks in enumerate(lists):
        if not ranks or min(ranks) < 0 or len(set(ranks)) < len(ranks):
            raise ValueError(
                f"init(process_sets=...): entry {index} has ranks {list(ranks)}; expected each once, from 0"
            )
    for starts in range(1, _MAX_STARTS + 1):
        core.init(progress=progress)
        try:
            _register(lists)
            return
        except HorovodInternalError as error:
            core.shutdown()
            if starts == _MAX_STARTS:
                raise ValueError(f"init(): {starts} times a rank was lost as the session began: {error}") from error
        except BaseException:
            core.shutdown()
            raise


def fitting(sets: Sequence[ProcessSet]) -> Sequence[ProcessSet]:
    """Those that the ranks of this round can have. Warns of the others, on all ranks alike."""
    size = core.size()
    found = [process_set for process_set in sets if _fits(process_set.ranks or (), size)]
    left_out = [process_set.ranks for process_set in sets if process_set not in found]
    if left_out:
        warnings.warn(
            f"horovod init(): this round has {size} ranks; the process sets {left_out} name others, or are all ranks, "
            "and are left out of it",
            stacklevel=4,
        )
    return found


def _fits(ranks: Sequence[int], size: int) -> bool:
    return max(ranks, default=0) < size and list(ranks) != list(range(size))


def _register(lists: Sequence[tuple[int, ...]]) -> None:
    digest = int.from_bytes(hashlib.sha256(repr(lists).encode()).digest()[:7], "big")
    if largest(digest, -digest) != [digest, -digest]:
        raise ValueError(f"The process sets given to init() differ between ranks; here they are {lists}")
    for ranks in dict.fromkeys(lists):
        if _fits(ranks, core.size()):
            try:
                core.add_process_set(ranks)
            except ValueError as error:  # the set is a good one: another rank has ended the session
                raise HorovodInternalError(str(error)) from error
