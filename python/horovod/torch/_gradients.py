"""Reduction of gradients while backward still runs: what stands behind DistributedOptimizer.

A GradientReducer belongs to one optimizer. Its hooks run on the thread that runs backward, the rest on the user's
thread; autograd never runs both at once. Each parameter goes round: `left` backward passes to go -> submitted
(`pending`) -> written back by finish() -> `left` is full again. It decides when to submit, and changes no parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet
from horovod.torch._allgather import sparse_allreduce_async
from horovod.torch._allreduce import reduce_now
from horovod.torch._tensors import CPU, reducible, set_id
from horovod.torch.compression import Compression, Compressor

RepeatedAllreduce = core.RepeatedAllreduce
_ALLREDUCE = core.OP_ALLREDUCE
_MAX = core.REDUCE_MAX

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


@dataclass(frozen=True)
class ReductionSettings:
    """How gradients are reduced. `prescale` and `postscale` hold the predivide factor."""

    compression: type[Compressor]
    op: int
    prescale: float
    postscale: float
    sparse_as_dense: bool
    process_set: ProcessSet


class _Waitable(Protocol):
    def wait(self) -> None: ...


class _SparseWait:
    """Makes the callable of a sparse allreduce look like a native handle; keeps its result."""

    __slots__ = ("_finish", "result")

    def __init__(self, finish: Callable[[], torch.Tensor]) -> None:
        self._finish = finish
        self.result: torch.Tensor | None = None

    def wait(self) -> None:
        self.result = self._finish()


class _Gradient:
    """The way of one parameter's gradient through a step.

    `target` is the parameter's grad when it was submitted, `sent` the tensor that travels, in place; they are the same
    object unless the gradient is compressed, sparse or not contiguous. `sparse_dim` > 0: the last gradient was sparse.
    `dense` submits the gradients of type `dtype`, whose shape is always the parameter's.
    """

    __slots__ = (
        "ctx",
        "dense",
        "dtype",
        "group",
        "left",
        "name",
        "parameter",
        "pending",
        "sent",
        "sparse_dim",
        "target",
        "wire_name",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.wire_name = f"allreduce.{name}"
        self.dtype: torch.dtype | None = None  # of the last gradient that was sent as it is
        self.dense: RepeatedAllreduce | None = None
        self.left = passes
        self.group: _Group | None = None
        self.pending: _Waitable | None = None
        self.target: torch.Tensor | None = None
        self.sent: torch.Tensor | None = None
        self.ctx: Any = None
        self.sparse_dim = 0


_DENSE = 1


def _kind(gradient: _Gradient) -> int:
    """0: not known yet; 1: dense; 1 + n: sparse with n sparse dimensions."""
    grad = gradient.parameter.grad
    if grad is None:
        return _DENSE + gradient.sparse_dim if gradient.sparse_dim > 0 else 0
    return _DENSE if grad.layout is torch.strided else _DENSE + grad.sparse_dim()


class _Group:
    """Gradients that are submitted together once all are ready. `missing` counts those that are not."""

    __slots__ = ("members", "missing")

    def __init__(self, members: list[_Gradient]) -> None:
        self.members = members
        self.missing = len(members)


def _make_hook(reducer: weakref.ref[GradientReducer]) -> Callable[[torch.Tensor], None]:
    """The hook of all parameters of a reducer. It holds no parameter: that would be a cycle nobody collects."""

    def hook(parameter: torch.Tensor) -> None:
        owner = reducer()
        if owner is not None:
            owner.ready(parameter)

    return hook


def _remove_all(hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()


class GradientReducer:
    """Submits each gradient when backward has made it, and writes the reduced ones back."""

    def __init__(self, settings: ReductionSettings, passes: int) -> None:
        self._settings = settings
        self._set_id = set_id(settings.process_set)
        self._plain = settings.compression is Compression.none
        self._passes = passes
        self._gradients: dict[int, _Gradient] = {}
        self._frozen: dict[int, tuple[torch.Tensor, str]] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._hook = _make_hook(weakref.ref(self))
        self._begun = False
        self._kinds_open = False
        weakref.finalize(self, _remove_all, self._hooks).atexit = False

    @property
    def begun(self) -> bool:
        """True from the first gradient of a step until finish()."""
        return self._begun

    # Setting up

    def attach(self, parameter: torch.Tensor, name: str) -> None:
        """Watches a parameter from now on; one that is frozen, from when it is not."""
        if not parameter.requires_grad:
            self._frozen[id(parameter)] = (parameter, name)
            return
        self._frozen.pop(id(parameter), None)
        self._gradients[id(parameter)] = _Gradient(parameter, name, self._passes)
        self._kinds_open = not self._settings.sparse_as_dense
        hook = parameter.register_post_accumulate_grad_hook(self._hook)  # type: ignore[no-untyped-call]
        self._hooks.append(hook)

    def group(self, parameters: Sequence[torch.Tensor]) -> None:
        """Makes attached parameters travel together; frozen ones are left out."""
        members = [self._gradients[id(p)] for p in parameters if id(p) in self._gradients]
        if len(members) < 2:
            return
        group = _Group(members)
        for gradient in members:
            gradient.group = group

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a step, and starts counting anew."""
        self._passes = passes
        self.reset()

    def reset(self) -> None:
        """Forgets what is in flight and starts counting anew."""
        for gradient in self._gradients.values():
            self._rewind(gradient)
        self._begun = False

    def _rewind(self, gradient: _Gradient) -> None:
        gradient.left = self._passes
        gradient.pending = gradient.target = gradient.sent = gradient.ctx = None
        if gradient.group is not None:
            gradient.group.missing = len(gradient.group.members)

    # During backward

    def ready(self, parameter: torch.Tensor) -> None:
        """A backward pass has added to the parameter's grad. Called by the hook; costs a few microseconds.

        The usual case stands here, written out: a call of Python is a tenth of all there is to do.
        """
        gradient = self._gradients[id(parameter)]
        left = gradient.left
        if left <= 0:
            raise AssertionError(TOO_MANY_PASSES)
        grad = parameter.grad
        if grad is not None and grad.requires_grad:
            raise AssertionError(f"the gradient of {gradient.name} requires a gradient itself; it cannot be reduced")
        gradient.left = left - 1
        self._begun = True
        if left > 1:
            return
        dense = gradient.dense
        if (
            dense is not None
            and gradient.group is None
            and grad is not None
            and grad.dtype is gradient.dtype
            and grad.is_contiguous()  # a sparse tensor is not
        ):
            gradient.target = gradient.sent = grad
            dense.start(grad.data_ptr(), grad)
            gradient.pending = dense
            return
        self._advance(gradient, grad)

    def _advance(self, gradient: _Gradient, grad: torch.Tensor | None) -> None:
        group = gradient.group
        if group is None:
            self._submit(gradient, grad)
            return
        group.missing -= 1
        if group.missing == 0:
            self._submit_group(group)

    # Submitting

    def _prepare(self, gradient: _Gradient) -> torch.Tensor:
        """Chooses what travels for a gradient that is to be reduced as a dense tensor."""
        target = gradient.parameter.grad
        if target is None:
            target = gradient.parameter.grad = torch.zeros_like(gradient.parameter)
        sent = target
        if target.layout is not torch.strided:
            gradient.sparse_dim = target.sparse_dim()
            sent = target.to_dense()
        if not self._plain:
            sent, gradient.ctx = self._settings.compression.compress(sent)
        if not sent.is_contiguous():
            sent = sent.contiguous()
        gradient.target = target
        gradient.sent = sent
        return sent

    def _submit(self, gradient: _Gradient, grad: torch.Tensor | None) -> None:
        settings = self._settings
        if not settings.sparse_as_dense and self._is_sparse(gradient, grad):
            self._submit_sparse(gradient, grad)
            return
        sent = self._prepare(gradient)
        dense = gradient.dense
        if dense is None or sent.dtype is not gradient.dtype:
            code = reducible(sent, settings.op, "DistributedOptimizer")
            dense = RepeatedAllreduce(
                gradient.wire_name,
                tuple(sent.shape),
                code,
                settings.op,
                settings.prescale,
                settings.postscale,
                self._set_id,
            )
            if self._plain:
                gradient.dtype, gradient.dense = sent.dtype, dense
        dense.start(sent.data_ptr(), sent)
        gradient.pending = dense

    @staticmethod
    def _is_sparse(gradient: _Gradient, grad: torch.Tensor | None) -> bool:
        """Whether the sparse way is taken; a parameter without a gradient in this step keeps the way it took before."""
        if grad is None:
            return gradient.sparse_dim > 0
        return grad.layout is not torch.strided

    def _submit_sparse(self, gradient: _Gradient, grad: torch.Tensor | None) -> None:
        if grad is None:
            shape = gradient.parameter.shape
            values = gradient.parameter.new_empty((0, *shape[gradient.sparse_dim :]))
            rows = torch.empty((gradient.sparse_dim, 0), dtype=torch.int64)
            grad = torch.sparse_coo_tensor(rows, values.detach(), shape, check_invariants=False)
        gradient.sparse_dim = grad.sparse_dim()
        settings = self._settings
        finish = sparse_allreduce_async(grad, gradient.name, settings.op, settings.process_set)
        gradient.pending = _SparseWait(finish)

    def _submit_group(self, group: _Group) -> None:
        settings = self._settings
        entries = []
        for index, gradient in enumerate(group.members):
            grad = gradient.parameter.grad
            if not settings.sparse_as_dense and grad is not None and grad.layout is not torch.strided:
                raise ValueError(
                    f"DistributedOptimizer: the gradient of {gradient.name} is sparse, which groups cannot reduce; "
                    "use sparse_as_dense=True or leave the parameter out of the groups"
                )
            sent = self._prepare(gradient)
            dtype = reducible(sent, settings.op, "DistributedOptimizer")
            name = f"grouped_{group.members[0].wire_name}_{index + 1}of{len(group.members)}"
            entries.append((name, sent.data_ptr(), sent.data_ptr(), sent.shape, dtype, CPU))
        keep = [gradient.sent for gradient in group.members]
        natives = core.enqueue_group(
            _ALLREDUCE, entries, settings.op, settings.prescale, settings.postscale, self._set_id, keep
        )
        for gradient, native in zip(group.members, natives, strict=True):
            gradient.pending = native

    # Finishing

    def finish(self) -> None:
        """Submits what backward did not reach, waits for everything and writes the results to the grads.

        Ends what it began also when an operation failed; the first error is raised then.
        """
        error: Exception | None = None
        try:
            self._submit_missing()
        except Exception as raised:
            error = raised
        for gradient in self._gradients.values():
            if gradient.pending is None:
                continue
            try:
                gradient.pending.wait()
                if error is None:
                    self._write_back(gradient, gradient.pending)
            except Exception as raised:
                error = error or raised
            gradient.pending = None
        self.reset()
        if error is not None:
            raise error

    def _submit_missing(self) -> None:
        for parameter, name in list(self._frozen.values()):
            self.attach(parameter, name)
        self._begun = True
        if self._kinds_open:
            self._agree_on_kinds()
        for gradient in self._gradients.values():
            if gradient.left > 0:
                gradient.left = 0
                self._advance(gradient, gradient.parameter.grad)

    def _agree_on_kinds(self) -> None:
        """Learns from the other ranks which parameters have sparse gradients.

        A rank that has not used a parameter yet cannot tell, and would submit zeros of the wrong form. Asked in the
        first step, and as long as there is a parameter that no rank has used.
        """
        settings = self._settings
        if (settings.process_set.size() or 1) == 1 or not self._gradients:
            self._kinds_open = False
            return
        ordered = sorted(self._gradients.values(), key=lambda gradient: gradient.name)
        own = torch.tensor([_kind(gradient) for gradient in ordered], dtype=torch.int32)
        name = f"{ordered[0].name}.gradient_kinds"
        kinds = reduce_now(own, name, _MAX, 1.0, 1.0, settings.process_set).tolist()
        for gradient, kind in zip(ordered, kinds, strict=True):
            gradient.sparse_dim = max(0, kind - _DENSE)
        self._kinds_open = 0 in kinds

    def _write_back(self, gradient: _Gradient, pending: _Waitable) -> None:
        parameter = gradient.parameter
        if isinstance(pending, _SparseWait):
            parameter.grad = pending.result
            return
        target, sent = gradient.target, gradient.sent
        if target is None or sent is None:
            raise RuntimeError(f"the gradient of {gradient.name} was submitted without a tensor")
        result = sent if self._plain else self._settings.compression.decompress(sent, gradient.ctx)
        if target.layout is not torch.strided:
            parameter.grad = result.to_sparse(gradient.sparse_dim)
            return
        if result is not target:
            target.copy_(result)
        if parameter.grad is not target:
            parameter.grad = target
