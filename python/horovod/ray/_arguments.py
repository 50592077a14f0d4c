"""The arguments of executors, checked before anything starts."""

from __future__ import annotations

import warnings
from typing import Any

from horovod.ray.adapter import StaticParams
from horovod.ray.elastic_adapter import ElasticParams

__all__ = ["check_arguments", "check_count", "check_gpus"]


def check_count(name: str, value: Any) -> None:
    """ValueError if `value`, of the argument `name`, is neither None nor a whole number from 1 on."""
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < 1):
        raise ValueError(f"{name}={value!r}, expected a whole number from 1 on")


def check_gpus(use_gpu: bool, name: str, value: int | None) -> None:
    """ValueError for GPUs of a worker, the argument `name`, without `use_gpu`, or with it fewer than one."""
    if value and not use_gpu:
        raise ValueError(f"{name}={value!r} was given without use_gpu=True")
    if use_gpu:
        check_count(name, value)


def check_arguments(static: StaticParams, elastic: ElasticParams) -> None:
    """ValueError, with the argument and its value, if a RayExecutor, which was given both, cannot be made of these."""
    min_workers, max_workers = elastic.min_workers, elastic.max_workers
    num_workers, num_hosts, cpus_per_worker = static.num_workers, static.num_hosts, static.cpus_per_worker
    if max_workers is not None and (min_workers is None or min_workers <= 0):
        raise ValueError(f"max_workers={max_workers!r} was given with min_workers={min_workers!r}, expected above 0")
    if min_workers is not None and num_workers is not None:
        raise ValueError(
            f"both min_workers and num_workers provided ({min_workers!r}, {num_workers!r}): the first is for elastic "
            "jobs, the second for others"
        )
    if min_workers is not None and num_hosts is not None:
        raise ValueError(f"both min_workers and num_hosts provided ({min_workers!r}, {num_hosts!r})")
    check_gpus(static.use_gpu, "gpus_per_worker", static.gpus_per_worker)
    counts = {
        "num_workers": num_workers,
        "num_hosts": num_hosts,
        "num_workers_per_host": static.num_workers_per_host,
        "min_workers": min_workers,
        "max_workers": max_workers,
    }
    for name, value in counts.items():
        check_count(name, value)
    if isinstance(cpus_per_worker, bool) or not isinstance(cpus_per_worker, int | float) or not cpus_per_worker > 0:
        raise ValueError(f"cpus_per_worker={cpus_per_worker!r}, expected a number above 0")
    if min_workers is None:
        for name, given in {"reset_limit": elastic.reset_limit, "cooldown_range": elastic.cooldown_range}.items():
            if given is not None:
                said = f"{name}={given!r} is for elastic jobs alone, it has no effect without min_workers"
                warnings.warn(said, stacklevel=3)
        return
    check_count("reset_limit", elastic.reset_limit)
    check_count("elastic_timeout", elastic.elastic_timeout)
    if max_workers is not None and max_workers < min_workers:
        raise ValueError(f"max_workers={max_workers!r} is below min_workers={min_workers!r}")
    if elastic.cooldown_range is not None and len(elastic.cooldown_range) != 2:
        raise ValueError(f"cooldown_range={elastic.cooldown_range!r}, expected two numbers of seconds")
