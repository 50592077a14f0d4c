"""The gradient of one parameter, and those that are sent together: as a group, or as parts of a flat bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.calls import Reduction
from horovod._common.native import core
from horovod.torch._tensors import code_of
from horovod.torch.compression import Compressor

if TYPE_CHECKING:
    from horovod._core import Handle

RepeatedAllreduce = core.RepeatedAllreduce

# The form of a gradient: 1 + its number of sparse dimensions. UNUSED: no rank has had a gradient yet. UNKNOWN: the
# ranks have not compared their forms yet.
UNKNOWN = -1
UNUSED = 0
DENSE = 1

_ALIGNMENT = 64  # bytes, of each gradient in a bucket


@dataclass(frozen=True)
class GradientSettings:
    """How gradients are reduced. The factors of `reduction` contain the predivide factor."""

    reduction: Reduction
    compression: type[Compressor]
    sparse_as_dense: bool
    as_bucket_view: bool = False


class SparseWait:
    """A sparse allreduce in flight, with the interface of a native handle; stores its result."""

    __slots__ = ("_finish", "result")

    def __init__(self, finish: Callable[[], torch.Tensor]) -> None:
        self._finish = finish
        self.result: torch.Tensor | None = None

    def wait(self) -> None:
        if self.result is None:
            self.result = self._finish()


class Gradient:
    """The state of one parameter's gradient in a step.

    `target` is the parameter's grad when it was submitted, with its `version`; zeros if it has none (`absent`). `sent`
    is the tensor that is reduced, in place: `target` itself unless that is compressed, sparse or not contiguous.
    `dense` submits tensors of type `code`; the hook may use it directly for gradients of type `dtype`, which it copies
    to the 16-bit buffer `half` if there is one. With a `bucket` it is `view`, a part of that.
    """

    __slots__ = (
        "absent",
        "bucket",
        "code",
        "ctx",
        "dense",
        "dtype",
        "form",
        "group",
        "half",
        "name",
        "parameter",
        "passes_left",
        "pending",
        "sent",
        "target",
        "version",
        "view",
        "wire_name",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.wire_name = f"allreduce.{name}"
        self.form = UNKNOWN
        self.passes_left = passes
        self.group: Group | None = None
        self.bucket: Bucket | None = None
        self.view: torch.Tensor | None = None
        self.dense: RepeatedAllreduce | None = None
        self.code = -1
        self.dtype: torch.dtype | None = None
        self.half: torch.Tensor | None = None
        self.pending: Handle | RepeatedAllreduce | SparseWait | None = None
        self.target: torch.Tensor | None = None
        self.sent: torch.Tensor | None = None
        self.ctx: Any = None
        self.version = 0
        self.absent = False

    def own_form(self) -> int:
        """The form of the grad that this rank has sent, or has; UNUSED if there is none."""
        grad = self.parameter.grad if self.target is None else self.target
        if grad is None or self.absent:
            return UNUSED
        return DENSE if grad.layout is torch.strided else DENSE + grad.sparse_dim()


class Group:
    """Gradients that are submitted together when all are ready. `missing`: how many are not."""

    __slots__ = ("members", "missing")

    def __init__(self, members: list[Gradient]) -> None:
        self.members = members
        self.missing = len(members)


class Bucket:
    """Memory for the gradients of `members`, at these offsets: reduced as one tensor, in memory that ranks of a host
    share. `missing`: how many are not ready in this step.
    """

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
