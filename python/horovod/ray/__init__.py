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

import importlib.util

if importlib.util.find_spec("ray") is None:
    raise ImportError("horovod.ray needs Ray, which is not installed here: pip install 'ray[default]'")

from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["RayExecutor", "BaseHorovodWorker", "ElasticRayExecutor"]
