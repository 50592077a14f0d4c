"""Memory of large results in TensorFlow: recycled, and never shared (docs/design/output-memory.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from page_faults import BEYOND_MALLOC, FRESH, faults

LARGE = 1 << 20


def test_large_results_come_from_pages_that_were_used_before() -> None:
    x = tf.ones([BEYOND_MALLOC])
    share = x[: BEYOND_MALLOC // hvd.size()]
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: hvd.allreduce(x, name="recycled"),
        "broadcast": lambda: hvd.broadcast(x, 0, name="recycled"),
        "allgather": lambda: hvd.allgather(share, name="recycled"),
    }
    counted = {}
    for name, call in calls.items():
        call()
        call()
        counted[name] = min(faults(call) for _ in range(2))
    assert all(count < FRESH for count in counted.values()), counted


def test_large_results_are_right_and_share_nothing() -> None:
    function = tf.function(lambda x: hvd.allreduce(x + 1.0, name="inside") * 2.0)
    kept = []
    for i in range(4):
        x = tf.fill([LARGE], float(i + hvd.rank()))
        kept.append((hvd.allreduce(x, name="kept"), function(x)))
        np.testing.assert_array_equal(x, i + hvd.rank())
    for i, (eager, graph) in enumerate(kept):
        mean = i + (hvd.size() - 1) / 2
        np.testing.assert_array_equal(eager, np.float32(mean))
        np.testing.assert_array_equal(graph, np.float32(2 * (mean + 1)))
