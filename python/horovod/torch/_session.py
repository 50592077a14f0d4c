"""The torch module's share of the session: its basics, its table of handles, and how operations are submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from horovod._common.handles import HandleTable, Pending, Started
from horovod._common.native import core
from horovod.common import util
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, _setup
from horovod.torch._tensors import CPU, set_id

if TYPE_CHECKING:
    from horovod._core import Handle

basics = HorovodBasics(__file__, "mpi_lib_v2")
handles = HandleTable()

basics._set_hooks(on_init=handles.pending.clear, on_shutdown=handles.restart_numbers)
_setup(basics)

handle_average_backwards_compatibility = util.get_average_backwards_compatibility_fun(basics)

_enqueue = core.enqueue


def file(number: int, pending: Pending | Started) -> int:
    """Makes a pending operation known under its handle."""
    handles.pending[number] = pending
    return number


def submit(
    operation: int,
    prefix: str,
    name: str | None,
    tensor: torch.Tensor,
    dtype: int,
    output_ptr: int,
    op: int,
    prescale: float,
    postscale: float,
    root_rank: int,
    process_set: ProcessSet,
    keep: Any,
) -> tuple[int, Handle]:
    """Submits one tensor under `prefix.name` or an automatic name; gives its number and its native handle."""
    number = handles.next_number()
    try:
        native = _enqueue(
            operation,
            f"{prefix}.{name}" if name else f"{prefix}.noname.{number}",
            tensor.data_ptr(),
            output_ptr,
            tensor.shape,
            dtype,
            CPU,
            op,
            prescale,
            postscale,
            root_rank,
            set_id(process_set),
            keep,
        )
    except BaseException:
        handles.give_back(number)
        raise
    return number, native


def not_built(name: str) -> NotImplementedError:
    """The error of a public function that has no implementation yet."""
    return NotImplementedError(f"horovod.torch.{name} is not built yet")


def submit_group(
    operation: int,
    prefix: str,
    name: str | None,
    tensors: Sequence[torch.Tensor],
    dtypes: Sequence[int],
    output_ptrs: Sequence[int],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    keep: Any,
) -> tuple[int, list[Handle]]:
    """The same for tensors that are negotiated together; all of them are submitted or none."""
    number = handles.next_number()
    if not tensors:
        return number, []
    base = f"{prefix}.{name}" if name else f"{prefix}.noname.{number}"
    entries = [
        (f"{base}_{index + 1}of{len(tensors)}", tensor.data_ptr(), output_ptr, tensor.shape, dtype, CPU)
        for index, (tensor, output_ptr, dtype) in enumerate(zip(tensors, output_ptrs, dtypes, strict=True))
    ]
    try:
        return number, core.enqueue_group(operation, entries, op, prescale, postscale, set_id(process_set), keep)
    except BaseException:
        handles.give_back(number)
        raise


def in_autograd(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
