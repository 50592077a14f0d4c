"""Elastic training: ranks that come and go. Not built yet; the names say so when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["ElasticSampler", "TorchState", "run"]


def _not_built(name: str) -> NoReturn:
    raise NotImplementedError(f"horovod.torch.elastic.{name} is not built yet")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an elastic training function. Not built yet."""
    del func
    _not_built("run")


class TorchState:
    """What elastic training saves, restores and synchronises. Not built yet."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        del model, optimizer, kwargs
        _not_built("TorchState")


class ElasticSampler:
    """A sampler that goes on where it was when ranks change. Not built yet."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        del dataset, shuffle, seed
        _not_built("ElasticSampler")
