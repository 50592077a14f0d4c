"""Whether large results lie in memory that is fresh: what the system gives anew, it gives by page faults."""

from __future__ import annotations

import resource
from collections.abc import Callable

BEYOND_MALLOC = 9 << 20  # elements; malloc maps 36 MiB anew each time: nine thousand pages
FRESH = 4000  # page faults: fresh memory has more


def faults(body: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    body()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
