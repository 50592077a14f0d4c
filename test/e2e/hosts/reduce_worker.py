"""A rank that sums vectors with all others until it is ended or the job fails; it needs no framework, so it starts quickly.

Prints `ready`, and `failed <time.monotonic()> <message>` for a HorovodInternalError, which makes it exit with 1.
Arguments: number of steps (default: without end), number of float32 elements (default 1000).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError


def sum_of_ranks(name: str, elements: int) -> float:
    """Every rank gives a vector of its rank + 1; returns the first element of the sum."""
    values = (ctypes.c_float * elements)(*[core.rank() + 1.0] * elements)
    address = ctypes.addressof(values)
    handle = core.enqueue(
        core.OP_ALLREDUCE, f"allreduce.{name}", address, address, [elements], core.DTYPE_FLOAT32, -1, core.REDUCE_SUM,
        1.0, 1.0, -1, 0, values,
    )
    handle.wait()
    return values[0]


def main() -> int:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    elements = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    core.init()
    print(
        f"topology {core.rank()}/{core.size()} local {core.local_rank()}/{core.local_size()} "
        f"cross {core.cross_rank()}/{core.cross_size()}",
        flush=True,
    )
    wanted = sum(range(1, core.size() + 1))
    try:
        for step in itertools.islice(itertools.count(), steps or None):
            assert sum_of_ranks("x", elements) == wanted
            if step == 0:
                print("ready", flush=True)
    except HorovodInternalError as error:
        print(f"failed {time.monotonic()} {error}", flush=True)
        return 1
    core.shutdown()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
