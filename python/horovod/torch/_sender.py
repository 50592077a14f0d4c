"""How gradients are sent: alone or in a group, compressed, dense or sparse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch

from horovod._common.calls import CPU
from horovod._common.native import core
from horovod.torch._allgather import sparse_allreduce_async
from horovod.torch._gradient import DENSE, Gradient, GradientSettings, Group, RepeatedAllreduce, SparseWait
from horovod.torch._tensors import place_of, reducible, sparse_tensor
from horovod.torch.compression import Compression

if TYPE_CHECKING:
    from horovod._core import Handle


class Sender:
    """Submits gradients and writes results back. GradientReducer decides when."""

    def __init__(self, settings: GradientSettings) -> None:
        self._settings = settings
        self._reduction = settings.reduction.for_core()
        self._uncompressed = settings.compression is Compression.none
        casts = (Compression.fp16, Compression.bf16)
        self._wire_type = settings.compression.wire_type if settings.compression in casts else None

    def submit(self, gradient: Gradient) -> None:
        """Sends a gradient alone; zeros, or no rows, if the parameter has none."""
        grad = gradient.parameter.grad
        form = gradient.form if grad is None else gradient.own_form()
        if form > DENSE and not self._settings.sparse_as_dense:
            self._submit_sparse(gradient, form - DENSE)
            return
        sent = self._prepare(gradient)
        code = reducible(sent, self._reduction[0], "DistributedOptimizer")
        dense = gradient.dense
        if dense is None or code != gradient.code:
            dense = RepeatedAllreduce(gradient.wire_name, tuple(sent.shape), code, self._reduction)
            gradient.dense, gradient.code = dense, code
        direct = self._uncompressed or self._wire_type is not None
        gradient.dtype = gradient.target.dtype if direct and gradient.target is not None else None
        dense.start(sent.data_ptr(), sent.shape, sent, CPU if sent.is_cpu else place_of(sent))
        gradient.pending = dense

    def submit_group(self, group: Group) -> None:
        """Sends the gradients of a group together."""
        entries = []
        for gradient in group.members:
            if gradient.own_form() > DENSE and not self._settings.sparse_as_dense:
                raise ValueError(
                    f"DistributedOptimizer: the gradient of {gradient.name} is sparse, which groups cannot reduce; "
                    "use sparse_as_dense=True or leave the parameter out of the groups"
                )
            sent = self._prepare(gradient)
            dtype = reducible(sent, self._reduction[0], "DistributedOptimizer")
            entries.append((sent.data_ptr(), sent.data_ptr(), sent.shape, dtype, place_of(sent)))
        sent_tensors = [gradient.sent for gradient in group.members]
        call = (core.OP_ALLREDUCE, f"grouped_{group.members[0].wire_name}", -1, ())
        natives = core.enqueue_group(call, entries, self._reduction, sent_tensors)
        for gradient, native in zip(group.members, natives.handles(), strict=True):
            gradient.pending = native

    def _prepare(self, gradient: Gradient) -> torch.Tensor:
        """The tensor that is sent for a gradient that is reduced as a dense one."""
        grad = gradient.parameter.grad
        gradient.absent = grad is None
        target = torch.zeros_like(gradient.parameter) if grad is None else grad
        gradient.target, gradient.version, gradient.half = target, target._version, None
        sent = target.resolve_neg() if target.layout is torch.strided else target.to_dense()
        if self._wire_type is not None:
            if sent.is_floating_point() and sent.dtype is not self._wire_type:
                half = gradient.half = torch.empty(sent.shape, dtype=self._wire_type, device=sent.device)
                sent = half.copy_(sent.detach())
        elif not self._uncompressed:
            sent, gradient.ctx = self._settings.compression.compress(sent)
        if not sent.is_contiguous():
            sent = sent.contiguous()
        gradient.sent = sent
        return sent

    def _submit_sparse(self, gradient: Gradient, sparse_dim: int) -> None:
        grad = gradient.parameter.grad
        gradient.absent = grad is None
        if grad is None:
            shape = gradient.parameter.shape
            values = gradient.parameter.new_empty((0, *shape[sparse_dim:]))
            rows = torch.empty((sparse_dim, 0), dtype=torch.int64, device=values.device)
            grad = sparse_tensor(rows, values.detach(), shape)
        gradient.target, gradient.version, gradient.sent = grad, grad._version, None
        reduction = self._settings.reduction
        finish = sparse_allreduce_async(grad, gradient.name, reduction.op, reduction.process_set)
        gradient.pending = SparseWait(finish)

    def waits(self, gradients: Iterable[Gradient]) -> list[Callable[[], object]]:
        """Functions that together wait for all gradients, to be called one after another; each may raise an error."""
        dense: list[Handle | RepeatedAllreduce] = []
        sparse: list[SparseWait] = []
        for gradient in gradients:
            pending = gradient.pending
            if isinstance(pending, SparseWait):
                sparse.append(pending)
            elif pending is not None:
                dense.append(pending)
        return [partial(core.wait_all, dense), *(waitable.wait for waitable in sparse)]

    def write_back(self, gradient: Gradient) -> None:
        """Makes the result the parameter's grad."""
        parameter, pending = gradient.parameter, gradient.pending
        if isinstance(pending, SparseWait):
            parameter.grad = pending.result
            return
        target, sent = gradient.target, gradient.sent
        if target is None or sent is None:
            raise RuntimeError(f"the gradient of {gradient.name} was submitted without a tensor")
        result = sent
        if not self._uncompressed and self._wire_type is None:
            result = self._settings.compression.decompress(sent, gradient.ctx)
        if target.layout is not torch.strided:
            parameter.grad = result.to(target.dtype).to_sparse(target.sparse_dim())
            return
        if result is not target:
            target.copy_(result)
        if gradient.absent and gradient.form > DENSE:
            target = target.to_sparse(gradient.form - DENSE)
        if parameter.grad is not target:
            parameter.grad = target
