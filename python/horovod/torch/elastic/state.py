"""What elastic training of a torch model saves, restores and synchronises."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """Saves, restores and synchronises one attribute of a TorchState: `value`, which has a state_dict()."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        """Copies the state."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Loads the copy; it stays as it is, also where the value takes over what it loads."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Every rank's value becomes rank 0's. A TorchState calls save() once that has succeeded for all handlers."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handles `value` from now on."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """For a torch.nn.Module."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """For a torch.optim.Optimizer, wrapped or not."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class StateDictHandler(StateHandler):
    """For anything else with state_dict() and load_state_dict(), such as a scheduler or a GradScaler."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0))


class SamplerStateHandler(StateDictHandler):
    """For an ElasticSampler: its progress is the same on all ranks."""


HandlerRegistry = list[tuple[type, type[StateHandler]]]


class _Handlers:
    registry: ClassVar[HandlerRegistry] = [
        (torch.nn.Module, ModelStateHandler),
        (torch.optim.Optimizer, OptimizerStateHandler),
        (ElasticSampler, SamplerStateHandler),
    ]


def get_handler_registry() -> HandlerRegistry:
    """Pairs of a type and of what handles its objects in a TorchState; the first that fits counts."""
    return _Handlers.registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Replaces the pairs, for the TorchStates that are made from now on."""
    _Handlers.registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in get_handler_registry():
        if isinstance(value, kind):
            return handler(value)
    # Not as a plain object: the copies of a scheduler, on other ranks, would drive copies of the optimizer.
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return StateDictHandler(value)
    return None


class TorchState(ObjectState):
    """Models, optimizers and samplers, and any other objects, as attributes.

    `TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)`. `kwargs` may name further models, optimizers,
    ElasticSamplers, schedulers and whatever else has state_dict() and load_state_dict(): the state of each is copied at
    save(). Other values are remembered as they are. Assigning to the
    attribute of a model, an optimizer or a sampler puts the new one in its place and saves it.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        if model is None:
            del values["model"]
        if optimizer is None:
            del values["optimizer"]
        handlers = {name: handler for name, value in values.items() if (handler := _handler_of(value)) is not None}
        self._handlers: dict[str, StateHandler] = handlers
        others = {name: value for name, value in values.items() if name not in handlers}
        super().__init__(broadcast_object, rank, **others)

    def __getattr__(self, name: str) -> Any:  # only of what is no attribute of the object itself
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        else:
            super().__setattr__(name, value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Every rank's models, optimizers and samplers become rank 0's, and other attributes what rank 0 saved last.

        All of it is saved when the last broadcast has succeeded: after one that fails, restore() gives no mixture.
        """
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def reset(self) -> None:
        """Samplers divide what is left of their epochs between the ranks that there are now."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
