"""Elastic training: the number of ranks changes during a job. Not built yet: every name raises NotImplementedError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._common.not_built import not_built

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func`, an elastic training function. Not built yet: NotImplementedError."""
    del func
    not_built("horovod.torch.elastic.run")


class TorchState:
    """The state of `model` and `optimizer` that elastic training restores. Not built yet: NotImplementedError."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        del model, optimizer, kwargs
        not_built("horovod.torch.elastic.TorchState")


class ElasticSampler:
    """A sampler of `dataset`, with `shuffle` and `seed`, that continues when ranks change.

    Not built yet: NotImplementedError.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        del dataset, shuffle, seed
        not_built("horovod.torch.elastic.ElasticSampler")
