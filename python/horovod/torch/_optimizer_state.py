"""Reading and replacing the state of a torch optimizer, parameter by parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer


@dataclass(frozen=True)
class TensorSpec:
    """Stands for a tensor that follows by itself, in place."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Described:
    """What a rank needs to take over another's optimizer: options by group, state by position of the parameter.

    `other` is state under keys that are no parameters.
    """

    options: list[dict[str, Any]]
    state: dict[int, dict[str, Any]]
    other: dict[Any, Any]


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _travels_in_place(value: Any) -> bool:
    """Whether a value of the state is sent as a tensor; everything else goes as an object."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_cpu and value.numel() > 0


# Making the state of a fresh optimizer


def _sparse_parameters(optimizer: Optimizer, model: torch.nn.Module | None) -> set[int]:
    """Ids of the parameters whose gradients are sparse."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return {id(parameter) for parameter in _parameters(optimizer)}
    if model is None:
        return set()
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {id(module.weight) for module in model.modules() if isinstance(module, embeddings) and module.sparse}


def _zero_gradient(parameter: torch.Tensor, sparse: bool) -> torch.Tensor:
    if not sparse:
        return torch.zeros_like(parameter)
    rows = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[1:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(rows, values, parameter.shape, check_invariants=False)


def initialise(optimizer: Optimizer, model: torch.nn.Module | None) -> None:
    """Lets an optimizer without state make it: one local step with zero gradients. Parameters and grads stay."""
    if optimizer.state:
        return
    sparse = _sparse_parameters(optimizer, model)
    trained = [parameter for parameter in _parameters(optimizer) if parameter.requires_grad]
    before = [(parameter, parameter.grad, parameter.detach().clone()) for parameter in trained]
    for parameter in trained:
        parameter.grad = _zero_gradient(parameter, id(parameter) in sparse)
    try:
        # Of the class: a scheduler that watches the instance's step shall not count this one.
        step = getattr(type(optimizer), "_step_locally", type(optimizer).step)
        step(optimizer)
    finally:
        with torch.no_grad():
            for parameter, grad, value in before:
                parameter.grad = grad
                parameter.copy_(value)  # weight decay moves it even without a gradient


# Taking over another's


def describe(optimizer: Optimizer) -> Described:
    """The optimizer's options and state, with a TensorSpec for each tensor that follows by itself."""
    parameters = _parameters(optimizer)
    own = set(parameters)
    state: dict[int, dict[str, Any]] = {}
    for position, parameter in enumerate(parameters):
        if parameter in optimizer.state:
            state[position] = {
                key: TensorSpec(tuple(value.shape), value.dtype) if _travels_in_place(value) else value
                for key, value in optimizer.state[parameter].items()
            }
    return Described(
        options=[{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        state=state,
        other={key: value for key, value in optimizer.state.items() if key not in own},
    )


def assume(optimizer: Optimizer, root: Described) -> None:
    """Gives the optimizer the described options and state; tensors that follow get their place, not their values."""
    parameters = _parameters(optimizer)
    if len(root.options) != len(optimizer.param_groups) or any(p >= len(parameters) for p in root.state):
        raise ValueError(
            f"broadcast_optimizer_state: this rank's optimizer has {len(parameters)} parameters in "
            f"{len(optimizer.param_groups)} groups, the root's has {len(root.options)} groups and state for "
            f"{len(root.state)} parameters"
        )
    for group, options in zip(optimizer.param_groups, root.options, strict=True):
        for key, value in options.items():
            group[key] = _kept_tensor(group.get(key), value)
    for position, parameter in enumerate(parameters):
        if position in root.state:
            _assume_one(optimizer.state[parameter], root.state[position])
        else:
            optimizer.state.pop(parameter, None)
    optimizer.state.update(root.other)


def _kept_tensor(own: Any, value: Any) -> Any:
    """`value`, written into the tensor that others may hold where that is possible (a learning rate, for example)."""
    if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor) and own.shape == value.shape:
        with torch.no_grad():
            return own.copy_(value)
    return value


def _assume_one(own: dict[str, Any], described: dict[str, Any]) -> None:
    before = dict(own)
    own.clear()
    for key, value in described.items():
        if not isinstance(value, TensorSpec):
            own[key] = value
            continue
        tensor = before.get(key)
        own[key] = tensor if _fits(tensor, value) else torch.empty(value.shape, dtype=value.dtype)


def _fits(tensor: Any, spec: TensorSpec) -> bool:
    return _travels_in_place(tensor) and tuple(tensor.shape) == spec.shape and tensor.dtype == spec.dtype


def tensors(optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that travel in place, as (wire name, tensor), in the same order on every rank."""
    occurrences: Counter[str] = Counter()
    for parameter in _parameters(optimizer):
        for key, value in optimizer.state.get(parameter, {}).items():
            if _travels_in_place(value):
                occurrences[key] += 1
                yield f"{key}.{occurrences[key]}", value
