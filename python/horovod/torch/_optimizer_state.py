"""Reading and replacing the state of a torch optimizer, parameter by parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from horovod.torch._tensors import is_on_usable_device
from horovod.torch._wrapping import parameters_of


@dataclass(frozen=True)
class TensorSpec:
    """Replaces a tensor in a description: the tensor itself is broadcast afterwards, in place."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_cpu: bool  # else it is on the device of its parameter, which may have another number on each rank


@dataclass(frozen=True)
class Described:
    """An optimizer without its tensors: options by group, state by position of the parameter.

    `sizes`: how many parameters each group has. `other` is state whose keys are not parameters.
    """

    sizes: list[int]
    options: list[dict[str, Any]]
    state: dict[int, dict[str, Any]]
    other: dict[Any, Any]


def _is_broadcast_in_place(value: Any) -> bool:
    """Whether a value of the state is broadcast as a tensor; all others are part of the pickled description."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return is_on_usable_device(value) and value.numel() > 0


def _spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), tensor.dtype, tensor.is_cpu)


def describe(optimizer: Optimizer) -> Described:
    """The optimizer's options and state, with a TensorSpec for each tensor that is broadcast in place."""
    parameters = list(parameters_of(optimizer))
    own = set(parameters)
    state: dict[int, dict[str, Any]] = {}
    for position, parameter in enumerate(parameters):
        if parameter in optimizer.state:
            state[position] = {
                key: _spec_of(value) if _is_broadcast_in_place(value) else value
                for key, value in optimizer.state[parameter].items()
            }
    return Described(
        sizes=_group_sizes(optimizer),
        options=[{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        state=state,
        other={key: value for key, value in optimizer.state.items() if key not in own},
    )


def _group_sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def apply_described(optimizer: Optimizer, root: Described) -> None:
    """Sets the described options and state; tensors that are broadcast in place are allocated, without values."""
    parameters = list(parameters_of(optimizer))
    sizes = _group_sizes(optimizer)
    if sizes != root.sizes:
        raise ValueError(
            f"broadcast_optimizer_state: the groups of this rank's optimizer have {sizes} parameters, those of the "
            f"root's {root.sizes}"
        )
    for group, options in zip(optimizer.param_groups, root.options, strict=True):
        for key, value in options.items():
            group[key] = _write_into(group.get(key), value)
    for position, parameter in enumerate(parameters):
        if position in root.state:
            _apply_to_parameter(optimizer.state[parameter], root.state[position], parameter.device)
        else:
            optimizer.state.pop(parameter, None)
    optimizer.state.update(root.other)


def _write_into(own: Any, value: Any) -> Any:
    """`value`; if possible written into the tensor `own`, which others may hold (a learning rate, for example)."""
    if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor) and own.shape == value.shape:
        with torch.no_grad():
            return own.copy_(value)
    return value


def _apply_to_parameter(own: dict[str, Any], described: dict[str, Any], device: torch.device) -> None:
    before = dict(own)
    own.clear()
    for key, value in described.items():
        if not isinstance(value, TensorSpec):
            own[key] = value
            continue
        tensor = before.get(key)
        place = torch.device("cpu") if value.is_cpu else device
        own[key] = tensor if _fits(tensor, value) else torch.empty(value.shape, dtype=value.dtype, device=place)


def _fits(tensor: Any, spec: TensorSpec) -> bool:
    if not _is_broadcast_in_place(tensor) or tensor.is_cpu != spec.is_cpu:
        return False
    return tuple(tensor.shape) == spec.shape and tensor.dtype == spec.dtype


def tensors(optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that are broadcast in place, as (wire name, tensor), in the same order on every rank."""
    occurrences: Counter[str] = Counter()
    for parameter in parameters_of(optimizer):
        for key, value in optimizer.state.get(parameter, {}).items():
            if _is_broadcast_in_place(value):
                occurrences[key] += 1
                yield f"{key}.{occurrences[key]}", value
