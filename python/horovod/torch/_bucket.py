"""A flat bucket of which gradients are views: it is reduced as one tensor, in memory that ranks of a host share."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.native import core
from horovod.torch._gradient import Gradient, GradientSettings, RepeatedAllreduce
from horovod.torch._tensors import code_of

_ALIGNMENT = 64  # bytes, of each gradient


class Bucket:
    """Memory for the gradients of `members`, at these offsets. `missing`: how many are not ready in this step."""

    __slots__ = ("allreduce", "members", "memory", "missing", "name", "offsets", "owner")

    def __init__(self, members: Sequence[Gradient], settings: GradientSettings) -> None:
        self.members = members
        self.missing = len(members)
        sizes = [padded(gradient.parameter) for gradient in members]
        self.offsets = {id(gradient): sum(sizes[:i]) for i, gradient in enumerate(members)}
        dtype = members[0].parameter.dtype
        self.memory = shared_zeros((sum(sizes),), dtype)
        self.owner = os.getpid()
        self.name = f"allreduce.{members[0].name}.bucket"
        self.allreduce = RepeatedAllreduce(self.name, (sum(sizes),), code_of(dtype), settings.reduction.for_core())
        for gradient in members:
            gradient.bucket, gradient.dense, gradient.half = self, None, None
            gradient.view = self.view_of(gradient)

    def view_of(self, gradient: Gradient) -> torch.Tensor:
        """The gradient's part, laid out like its parameter. Versions of views are counted apart."""
        shape = gradient.parameter.shape
        strides = strides_of(gradient.parameter)
        return self.memory.as_strided(shape, strides, self.offsets[id(gradient)]).data

    def holds(self, gradient: Gradient, tensor: torch.Tensor) -> bool:
        """Whether a tensor that was its view still is: `tensor.data = ...` and model.double() give it other memory."""
        place = self.memory.data_ptr() + self.offsets[id(gradient)] * self.memory.element_size()
        return tensor.data_ptr() == place and tensor.dtype is self.memory.dtype

    def release(self) -> None:
        """Gives the parameters gradients of their own; none in a forked child, which does not have shared memory."""
        is_here = os.getpid() == self.owner
        for gradient in self.members:
            if gradient.parameter.grad is gradient.view and gradient.view is not None:
                gradient.parameter.grad = gradient.view.clone() if is_here else None
            gradient.bucket = gradient.view = None

    def refuse(self, settings: GradientSettings) -> None:
        """Fails the allreduce on all ranks, which wait for this one's gradients: it sends another shape."""
        other = self.memory.new_zeros(self.memory.numel() + 1)
        code, reduction = code_of(other.dtype), settings.reduction.for_core()
        refusal = RepeatedAllreduce(self.name, tuple(other.shape), code, reduction)
        refusal.start(other.data_ptr(), other.shape, other)
        self.members[0].pending = refusal
        self.missing = 0


def shared_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in memory that the ranks of this host share, where they do: an allreduce in place copies nothing there."""
    capsule = core.new_shared(tuple(shape), code_of(dtype))
    if capsule is None:
        return torch.zeros(tuple(shape), dtype=dtype, device="cpu")
    zeros: torch.Tensor = from_dlpack(capsule)
    return zeros


def padded(parameter: torch.Tensor) -> int:
    """Elements that a gradient has in a bucket."""
    unit = max(1, _ALIGNMENT // parameter.element_size())
    return -(-parameter.numel() // unit) * unit


def strides_of(parameter: torch.Tensor) -> tuple[int, ...]:
    """Those of the parameter, if it fills its memory in some order of dimensions; else those of that of its shape."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return torch.empty(parameter.shape, device="meta").stride()
        expected *= size
    return parameter.stride()
