"""What a rank of horovod.spark.run() can ask of its Spark task."""

from __future__ import annotations

from horovod import _env
from horovod.spark import _task

__all__ = ["get_available_devices"]


def get_available_devices() -> list[str]:
    """The addresses of the GPUs that Spark's resource scheduling (`spark.task.resource.gpu.amount`) has assigned to
    this rank's task, such as ["0"]; [] without it."""
    text = _env.get(_task.DEVICES)
    return text.split(",") if text else []
