"""Elastic training: what survives when a collective fails or ranks change, and the loop that goes on from it.

`horovodrun --min-np` starts a job whose ranks come and go; elsewhere the same scripts run on ranks that stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod.common.elastic import restart_session, run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.scaling import keep_batch_size, scale_learning_rate
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "keep_batch_size", "run", "scale_learning_rate"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` that is called again, from the last commit, after a failure.

    `state`: a TorchState, or another State. When a collective fails (HorovodInternalError), Horovod is shut down and
    initialised again, the state returns to its last commit, and `func` is called anew; it gives what `func` gives.
    """
    return run_fn(func, restart_session)
