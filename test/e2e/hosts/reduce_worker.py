"""A rank that sums vectors with all others until it is told to end. It needs no framework, so it starts quickly.

Prints its `topology`, `ready` after the first sum, `steps <count>` now and then, and `done`; for a HorovodInternalError
`failed <time.monotonic()> <message>`, which makes it exit with 1.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import sys
import time

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

REPORT_EVERY_S = 0.2


def sum_over_ranks(name: str, first: float, elements: int) -> float:
    """Every rank gives a vector that begins with `first`; returns the first element of the sum."""
    values = (ctypes.c_float * elements)(first)
    address = ctypes.addressof(values)
    call = (core.OP_ALLREDUCE, f"allreduce.{name}", -1, ())
    tensor = (address, address, [elements], core.DTYPE_FLOAT32, -1)
    core.enqueue(call, tensor, (core.REDUCE_SUM, 1.0, 1.0, 0), values).wait()
    return values[0]


def work(until: str, elements: int) -> None:
    wanted = sum(range(1, core.size() + 1))
    next_report = 0.0
    for step in itertools.count(1):
        assert sum_over_ranks("sum", core.rank() + 1.0, elements) == wanted
        if step == 1:
            print("ready", flush=True)
        if time.monotonic() >= next_report:
            print("steps", step, flush=True)
            next_report = time.monotonic() + REPORT_EVERY_S
        # Rank 0 decides, so that all end after the same step.
        if sum_over_ranks("end", float(core.rank() == 0 and os.path.exists(until)), 1) > 0:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--until", default="", metavar="FILE", help="end when rank 0 sees this file; default: never")
    parser.add_argument("--elements", type=int, default=1000, help="float32 values in a vector")
    arguments = parser.parse_args()
    core.init()
    print(
        f"topology {core.rank()}/{core.size()} local {core.local_rank()}/{core.local_size()} "
        f"cross {core.cross_rank()}/{core.cross_size()}",
        flush=True,
    )
    try:
        work(arguments.until, arguments.elements)
    except HorovodInternalError as error:
        print(f"failed {time.monotonic()} {error}", flush=True)
        return 1
    core.shutdown()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
