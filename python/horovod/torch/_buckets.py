"""The buckets of an optimizer, of which gradients are views: how ranks agree on them and fill them.

The first step goes without. At its end ranks know which gradients there are, agree on how they lie in buckets, and go
on with these; later for gradients that are new. A gradient that backward() did not write into its bucket, as after
zero_grad(set_to_none=True), is copied there, and the view becomes the parameter's grad.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from horovod._common.calls import Call, unscaled
from horovod._common.native import core
from horovod.torch._gradient import DENSE, Bucket, Gradient, GradientSettings, padded, strides_of
from horovod.torch._session import submit
from horovod.torch._tensors import code_of

if TYPE_CHECKING:
    from horovod._core import Handle

_LARGEST = 25 << 20  # bytes; a parameter that is larger has one for itself
_COMPARISON = Call(core.OP_ALLREDUCE, "allreduce")


@dataclass(frozen=True)
class _Agreement:
    """A comparison of plans that is running. `anew`: the plan is for all gradients. `outside`: how many it leaves out
    of `total`.
    """

    plan: list[list[Gradient]]
    anew: bool
    outside: int
    total: int
    comparison: Handle | None  # None: nobody to compare with


class Buckets:
    """All buckets of an optimizer. GradientReducer decides when gradients are ready and when ranks agree.

    `wanted`: gradients may be put into buckets at the end of this step. `outdated`: parameters have changed, so that
    the buckets do not fit. Both are this rank's wishes; all do what one wants.
    """

    def __init__(self, settings: GradientSettings) -> None:
        self._settings = settings
        self._buckets: list[Bucket] = []
        self._warned = False
        self._agreement: _Agreement | None = None
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
            self.outdated |= grad.layout is torch.strided

    def restart(self) -> None:
        """Before a step: no gradient is ready."""
        self._agreement = None
        for bucket in self._buckets:
            bucket.missing = len(bucket.members)

    def refuse_incomplete(self) -> None:
        """At the end of a step, when all gradients should have been taken in. RuntimeError if one was not."""
        incomplete = [bucket for bucket in self._buckets if bucket.missing > 0]
        for bucket in incomplete:
            bucket.refuse(self._settings)
        if incomplete:
            name = incomplete[0].members[0].name
            raise RuntimeError(f"gradient_as_bucket_view: backward() failed within the bucket of {name}")

    def drop(self) -> None:
        """Gives the parameters gradients of their own, as in an earlier session others may still know the memory."""
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()
        self._agreement = None
        self.wanted, self.outdated = True, False

    def ask(self, gradients: Iterable[Gradient], anew: bool) -> None:
        """Compares between ranks which buckets they would make for dense gradients that have none. Waits for it, after
        KeyboardInterrupt again. All ranks must call it, with none joined, as the buckets would differ from that one's.

        `anew`: for all gradients. The order is against that of the parameters, because backward() goes that way.
        """
        if self._agreement is None:
            self._agreement = self._start_agreement(list(gradients), anew)
        if self._agreement.comparison is not None:
            self._agreement.comparison.wait()

    def _start_agreement(self, gradients: list[Gradient], anew: bool) -> _Agreement:
        waiting = [gradient for gradient in reversed(gradients) if anew or gradient.bucket is None]
        plan = _plan([gradient for gradient in waiting if gradient.form == DENSE and _fits(gradient.parameter)])
        outside = sum(1 for gradient in waiting if gradient.form > DENSE or not _fits(gradient.parameter))
        text = repr([[_describe(gradient) for gradient in members] for members in plan])
        comparison = _compare(text, min(gradient.name for gradient in gradients), self._settings)
        return _Agreement(plan, anew, outside, len(gradients), comparison)

    def make(self) -> None:
        """Makes the buckets that ranks were asked about, if all would make the same; nothing without ask()."""
        agreement, self._agreement = self._agreement, None
        if agreement is None:
            return
        if agreement.anew:
            self.drop()
        self.wanted = False
        comparison = agreement.comparison
        if comparison is not None and not _is_same(comparison.wait()):
            self._warn("parameters differ between ranks, or their order does: gradients stay outside of the buckets")
            return
        self._buckets.extend(Bucket(members, self._settings) for members in agreement.plan)
        if agreement.outside:
            self._warn(
                f"{agreement.outside} of {agreement.total} gradients are sparse, of an unusual type or not on the CPU: "
                "they stay outside of the buckets"
            )

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"gradient_as_bucket_view: {what}", stacklevel=7)


def _fits(parameter: torch.Tensor) -> bool:
    usual = parameter.is_cpu and parameter.layout is torch.strided and parameter.numel() > 0
    return usual and parameter.dtype.is_floating_point and code_of(parameter.dtype) >= 0


def _describe(gradient: Gradient) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    parameter = gradient.parameter
    return gradient.name, str(parameter.dtype), tuple(parameter.shape), strides_of(parameter)


def _plan(gradients: Iterable[Gradient]) -> list[list[Gradient]]:
    """Those that share a bucket: neighbours of one type."""
    done: list[list[Gradient]] = []
    open_ones: dict[torch.dtype, tuple[int, list[Gradient]]] = {}
    for gradient in gradients:
        dtype = gradient.parameter.dtype
        size = padded(gradient.parameter) * gradient.parameter.element_size()
        filled, members = open_ones.get(dtype, (0, []))
        if members and filled + size > _LARGEST:
            filled, members = 0, []
        if not members:
            done.append(members)
        members.append(gradient)
        open_ones[dtype] = filled + size, members
    return done


def _compare(text: str, name: str, settings: GradientSettings) -> Handle | None:
    """Starts the comparison of a text between ranks; None if there is but one."""
    process_set = settings.reduction.process_set
    if process_set.size() == 1:
        return None
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    # The maxima of x and of ~x are the greatest and, inverted, the least.
    own = torch.tensor([digest, ~digest], device="cpu")
    return submit(_COMPARISON, f"{name}.buckets", unscaled(core.REDUCE_MAX, process_set), own)[1]


def _is_same(maxima: torch.Tensor) -> bool:
    return bool(maxima[0] == ~maxima[1])
