"""Horovod on a Ray cluster: a training function on actors that are the ranks of a job.

    import ray
    from horovod.ray import RayExecutor

    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
    executor.start()
    results = executor.run(train, args=[0.1])
    executor.shutdown()
"""

from __future__ import annotations

from horovod.ray import _installed  # noqa: F401  # first: it says what is missing
from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["RayExecutor", "BaseHorovodWorker", "ElasticRayExecutor"]
