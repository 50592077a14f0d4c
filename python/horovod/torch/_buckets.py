"""Flat buckets of which gradients are views: each is reduced as one tensor, in memory that ranks of a host share.

The first step goes without. At its end ranks know which gradients there are, agree on how they lie in buckets, and go
on with these; later for gradients that are new. A gradient that backward() did not write into its bucket, as after
zero_grad(set_to_none=True), is copied there, and the view becomes the parameter's grad.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.calls import unscaled
from horovod._common.native import core
from horovod.torch._allreduce import reduce_now
from horovod.torch._gradient import DENSE, Gradient, GradientSettings, RepeatedAllreduce
from horovod.torch._tensors import code_of

_LARGEST = 25 << 20  # bytes; a parameter that is larger has one for itself
_ALIGNMENT = 64  # bytes, of each gradient


class Bucket:
    """Memory for the gradients of `members`, at these offsets. `missing`: how many are not ready in this step."""

    __slots__ = ("allreduce", "members", "memory", "missing", "offsets")

    def __init__(self, members: Sequence[Gradient], settings: GradientSettings) -> None:
        self.members = members
        self.missing = len(members)
        sizes = [_padded(gradient.parameter) for gradient in members]
        self.offsets = {id(gradient): sum(sizes[:i]) for i, gradient in enumerate(members)}
        dtype = members[0].parameter.dtype
        self.memory = shared_zeros((sum(sizes),), dtype)
        name = f"allreduce.{members[0].name}.bucket"
        self.allreduce = RepeatedAllreduce(name, (sum(sizes),), code_of(dtype), settings.reduction.for_core())
        for gradient in members:
            gradient.bucket, gradient.dense, gradient.half = self, None, None
            gradient.view = self.view_of(gradient)

    def view_of(self, gradient: Gradient) -> torch.Tensor:
        """The gradient's part, laid out like its parameter. Versions of views are counted apart."""
        shape = gradient.parameter.shape
        strides = _strides(gradient.parameter)
        return self.memory.as_strided(shape, strides, self.offsets[id(gradient)]).data

    def holds(self, gradient: Gradient, tensor: torch.Tensor) -> bool:
        """Whether a tensor that was its view still is: `tensor.data = ...` and model.double() give it other memory."""
        place = self.memory.data_ptr() + self.offsets[id(gradient)] * self.memory.element_size()
        return tensor.data_ptr() == place and tensor.dtype is self.memory.dtype


class Buckets:
    """All buckets of an optimizer. GradientReducer decides when gradients are ready and when ranks agree.

    `wanted`: gradients may be put into buckets at the end of this step. `outdated`: parameters have changed, so that
    the buckets do not fit. Both are this rank's wishes; all do what one wants.
    """

    def __init__(self, settings: GradientSettings) -> None:
        self._settings = settings
        self._buckets: list[Bucket] = []
        self._warned = False
        self.wanted = True
        self.outdated = False

    def take_in(self, gradient: Gradient) -> None:
        """Puts a gradient that is ready, or zeros, into its bucket; the last one submits the bucket."""
        bucket, view, grad = gradient.bucket, gradient.view, gradient.parameter.grad
        if bucket is None or view is None:
            raise RuntimeError(f"the gradient of {gradient.name} is in no bucket")
        if not bucket.holds(gradient, view):
            view = gradient.view = bucket.view_of(gradient)
        gradient.absent = grad is None
        gradient.target = view
        if grad is None:
            view.zero_()
        elif grad is not view:
            self._copy(gradient, grad.detach(), view)
        gradient.sent = view
        gradient.version = gradient.target._version
        bucket.missing -= 1
        if bucket.missing == 0:
            memory = bucket.memory
            bucket.allreduce.start(memory.data_ptr(), memory.shape, memory)
            bucket.members[0].pending = bucket.allreduce

    def _copy(self, gradient: Gradient, grad: torch.Tensor, view: torch.Tensor) -> None:
        parameter = gradient.parameter
        if grad.shape != view.shape:
            raise ValueError(
                f"gradient_as_bucket_view: the gradient of {gradient.name} had shape {list(view.shape)} and now has "
                f"{list(grad.shape)}; wrap the optimizer again after changing shapes"
            )
        view.copy_(grad if grad.layout is torch.strided else grad.to_dense())
        if grad.layout is torch.strided and grad.dtype is view.dtype and grad.device == view.device:
            parameter.grad = view
        else:  # the result is copied back
            gradient.target = parameter.grad
            self.outdated = grad.layout is torch.strided

    def restart(self) -> None:
        """Before a step: no gradient is ready."""
        for bucket in self._buckets:
            bucket.missing = len(bucket.members)

    def drop(self) -> None:
        """Gives the parameters gradients of their own, as in an earlier session others may still know the memory."""
        for bucket in self._buckets:
            for gradient in bucket.members:
                if gradient.parameter.grad is gradient.view and gradient.view is not None:
                    gradient.parameter.grad = gradient.view.clone()
                gradient.bucket = gradient.view = None
        self._buckets.clear()
        self.wanted, self.outdated = True, False

    def agree(self, gradients: Iterable[Gradient], anew: bool) -> None:
        """Makes buckets for dense gradients that have none, if all ranks would make the same. All of them must call it.

        `anew`: for all gradients. The order is against that of the parameters, because backward() goes that way.
        """
        if anew:
            self.drop()
        gradients = list(gradients)
        waiting = [gradient for gradient in reversed(gradients) if gradient.bucket is None]
        plan = _plan([gradient for gradient in waiting if gradient.form == DENSE and _fits(gradient.parameter)])
        text = repr([[_describe(gradient) for gradient in members] for members in plan])
        same = _is_same_everywhere(text, min(gradient.name for gradient in gradients), self._settings)
        self.wanted = same is None  # a rank has joined: the next step may find it back
        if same:
            self._buckets.extend(Bucket(members, self._settings) for members in plan)
        outside = sum(1 for gradient in waiting if gradient.form > DENSE or not _fits(gradient.parameter))
        if same is False:
            self._warn("parameters differ between ranks, or their order does: gradients stay outside of the buckets")
        elif outside:
            self._warn(
                f"{outside} of {len(gradients)} gradients are sparse, of an unusual type or not on the CPU: they stay "
                "outside of the buckets"
            )

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"gradient_as_bucket_view: {what}", stacklevel=7)


def shared_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in memory that the ranks of this host share, where they do: an allreduce in place copies nothing there."""
    capsule = core.new_shared(tuple(shape), code_of(dtype))
    if capsule is None:
        return torch.zeros(tuple(shape), dtype=dtype)
    zeros: torch.Tensor = from_dlpack(capsule)
    return zeros


def _padded(parameter: torch.Tensor) -> int:
    """Elements that a gradient has in a bucket."""
    unit = max(1, _ALIGNMENT // parameter.element_size())
    return -(-parameter.numel() // unit) * unit


def _strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Those of the parameter, if it fills its memory in some order of dimensions; else those of that of its shape."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return torch.empty(parameter.shape, device="meta").stride()
        expected *= size
    return parameter.stride()


def _fits(parameter: torch.Tensor) -> bool:
    usual = parameter.is_cpu and parameter.layout is torch.strided and parameter.numel() > 0
    return usual and parameter.dtype.is_floating_point and code_of(parameter.dtype) >= 0


def _describe(gradient: Gradient) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    parameter = gradient.parameter
    return gradient.name, str(parameter.dtype), tuple(parameter.shape), _strides(parameter)


def _plan(gradients: Iterable[Gradient]) -> list[list[Gradient]]:
    """Those that share a bucket: neighbours of one type."""
    done: list[list[Gradient]] = []
    open_ones: dict[torch.dtype, tuple[int, list[Gradient]]] = {}
    for gradient in gradients:
        dtype = gradient.parameter.dtype
        size = _padded(gradient.parameter) * gradient.parameter.element_size()
        filled, members = open_ones.get(dtype, (0, []))
        if members and filled + size > _LARGEST:
            filled, members = 0, []
        if not members:
            done.append(members)
        members.append(gradient)
        open_ones[dtype] = filled + size, members
    return done


def _is_same_everywhere(text: str, name: str, settings: GradientSettings) -> bool | None:
    """Whether all ranks have the same text. None if one has joined."""
    process_set = settings.reduction.process_set
    if process_set.size() == 1:
        return True
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    # The maxima of x and of ~x are the greatest and, inverted, the least. The first x is 1 on ranks that take part.
    own = torch.tensor([1, digest])
    greatest = reduce_now(torch.cat([own, ~own]), f"{name}.buckets", unscaled(core.REDUCE_MAX, process_set))
    most, least = greatest[:2], ~greatest[2:]
    return None if least[0] != 1 else bool(most[1] == least[1])
