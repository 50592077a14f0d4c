"""One rank of the init() benchmark: writes when it entered hvd.init() and when it returned (CLOCK_MONOTONIC, which all
processes of a host share) to a file of its own in the directory given as the argument."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import horovod.torch as hvd

entered = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
hvd.init()
returned = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
Path(sys.argv[1], f"{hvd.rank()}.json").write_text(json.dumps({"entered": entered, "returned": returned}))
hvd.shutdown()
