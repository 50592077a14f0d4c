"""Elastic training: ranks that come and go. Not built yet; the names say so when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._common.not_built import not_built

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an elastic training function. Not built yet."""
    del func
    not_built("horovod.torch.elastic.run")


class TorchState:
    """What elastic training saves, restores and synchronises. Not built yet."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        del model, optimizer, kwargs
        not_built("horovod.torch.elastic.TorchState")


class ElasticSampler:
    """A sampler that goes on where it was when ranks change. Not built yet."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        del dataset, shuffle, seed
        not_built("horovod.torch.elastic.ElasticSampler")
