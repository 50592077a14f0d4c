"""What finds hosts for RayExecutor: RayHostDiscovery with the names that the executor has for its arguments."""

from __future__ import annotations

from horovod.ray import elastic
from horovod.ray.elastic import TestDiscovery

__all__ = ["RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(elastic.RayHostDiscovery):
    """The living nodes of the cluster as hosts.

    Args:
        use_gpu: Whether each worker has GPUs.
        cpus_per_worker: Processors of a worker.
        gpus_per_worker: GPUs of a worker, with `use_gpu`.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_worker: int = 1, gpus_per_worker: int = 1) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)
