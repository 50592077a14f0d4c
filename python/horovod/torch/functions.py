"""Broadcast of parameters, optimizer state and Python objects; allgather of objects."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import torch
from torch.optim import Optimizer

from horovod._common import objects
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _optimizer_state
from horovod.torch._allgather import gather_with_rows
from horovod.torch._broadcast import broadcast_, broadcast_each_
from horovod.torch._join import join

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "join_and_broadcast",
]


def _dump(obj: Any, purpose: str) -> torch.Tensor:
    return torch.frombuffer(objects.dump(obj, purpose), dtype=torch.uint8)


def _load(data: torch.Tensor, sender: int, purpose: str) -> Any:
    # No data.numpy(): torch is installed without numpy, too.
    memory = (ctypes.c_char * data.numel()).from_address(data.data_ptr())
    return objects.load(memoryview(memory), sender, purpose)


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Overwrites tensors with those of global rank `root_rank`, and waits.

    `params`: a dict such as model.state_dict(), a list of tensors, or a list of (name, tensor) tuples; on the CPU or a
    CUDA GPU, with the same names, shapes and types on all ranks. Returns nothing. ValueError for other `params`; else
    errors as for broadcast().
    """
    named: list[tuple[str | None, Any]]
    if isinstance(params, Mapping):
        named = sorted(params.items(), key=itemgetter(0))
    elif isinstance(params, list):
        named = [p if isinstance(p, tuple) else (None, p) for p in params]
    else:
        raise ValueError(
            "broadcast_parameters: expected a dict, a list of tensors or a list of (name, tensor) tuples, got "
            f"{type(params).__name__}; for model.named_parameters() pass list(...) or model.state_dict()"
        )
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"broadcast_parameters: {name!r} is a {type(tensor).__name__}, not a tensor")
    broadcast_each_(named, root_rank)


def broadcast_optimizer_state(optimizer: Optimizer, root_rank: int, model: torch.nn.Module | None = None) -> None:
    """Overwrites the state and the options of `optimizer` with those of global rank `root_rank`, and waits.

    The state is empty afterwards if the root's optimizer has taken no step yet. `model` is accepted for compatibility:
    Horovod 0.28 took a trial step, which needed it. Returns nothing.

    ValueError: LBFGS, or an optimizer with other parameter groups than the root's; else errors as for broadcast().
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("broadcast_optimizer_state: the state of torch.optim.LBFGS cannot be broadcast")
    is_root = objects.is_root(root_rank)
    described = _optimizer_state.describe(optimizer) if is_root else None
    root_state = broadcast_object(described, root_rank, "broadcast_optimizer_state")
    if not is_root:
        _optimizer_state.apply_described(optimizer, root_state)
    broadcast_each_(_optimizer_state.tensors(optimizer), root_rank)


def join_and_broadcast(model: torch.nn.Module, optimizer: Optimizer | None = None) -> int:
    """join(); then all ranks get the parameters and buffers of `model` from the rank that joined last.

    Ranks that joined earlier have missed its last steps. With `optimizer` also its state and options. Returns the rank
    that joined last, an int. Errors as for join(), broadcast_parameters() and broadcast_optimizer_state().
    """
    last = join()
    broadcast_parameters(model.state_dict(), last)
    if optimizer is not None:
        broadcast_optimizer_state(optimizer, last)
    return last


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns a copy of global rank `root_rank`'s object `obj`; on the root the object itself.

    `obj`: anything that pickle takes; on other ranks it is not used and may be None. `name` and `process_set`: as for
    broadcast(). ValueError: this rank is not in the set. HorovodInternalError: a rank is lost, the bytes are not the
    root's, or Horovod is not initialised.
    """
    is_root = objects.is_root(root_rank)
    purpose = objects.purpose("broadcast_object", name, process_set.process_set_id)
    data = _dump(obj, purpose) if is_root else torch.empty(0, dtype=torch.uint8, device="cpu")
    length = torch.tensor([data.numel()], dtype=torch.int64, device="cpu")
    broadcast_(length, root_rank, f"{name}.sz" if name else None, process_set)
    if not is_root:
        data = torch.empty(int(length.item()), dtype=torch.uint8, device="cpu")
    broadcast_(data, root_rank, f"{name}.t" if name else None, process_set)
    return obj if is_root else _load(data, root_rank, purpose)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Returns the list of all ranks' objects, in rank order.

    `obj`: anything that pickle takes; size and type may differ between ranks. `name`: as for allgather().
    HorovodInternalError: a rank is lost, bytes are not those of their rank, or Horovod is not initialised.
    """
    purpose = objects.purpose("allgather_object", name, 0)
    gathered, lengths = gather_with_rows(_dump(obj, purpose), f"{name}.t" if name else None, global_process_set)
    return [_load(data, rank, purpose) for rank, data in enumerate(torch.split(gathered, lengths))]
