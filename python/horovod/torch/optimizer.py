"""DistributedOptimizer: wraps a torch optimizer so that each step uses the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.optim import Optimizer

from horovod._common.calls import Reduction, unscaled
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.torch._adasum_optimizer import AdasumOptimizer
from horovod.torch._allreduce import reduce_now
from horovod.torch._gradient import GradientSettings
from horovod.torch._gradients import GradientReducer
from horovod.torch._private import require_end_of_backward
from horovod.torch._wrapping import (
    ZERO_GRAD_TOO_EARLY,
    Groups,
    NamedParameters,
    check_devices,
    check_groups,
    check_names,
    is_distributed,
    loading_in_place,
    mark_stepped,
    name_added,
    parameters_of,
    take_over,
)
from horovod.torch.compression import Compression, Compressor
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import Adasum, Average, rocm_built, size

__all__ = ["DistributedOptimizer"]

_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
    "if you use optimizer.synchronize() in your code."
)


@dataclass(frozen=True)
class _Settings:
    """The arguments of DistributedOptimizer, checked."""

    gradients: GradientSettings
    passes: int
    groups: Groups | None
    in_backward: bool


class _DistributedOptimizer(Optimizer):
    """The methods that a distributed optimizer adds to the wrapped class.

    DistributedOptimizer() derives a class from this one and the wrapped one, to which super() refers here.
    """

    _parameter_names: dict[torch.Tensor, str]
    _settings: _Settings
    _reducer: GradientReducer | None = None
    _wrapped: Optimizer | None = None

    def __init__(self, optimizer: Optimizer, names: dict[torch.Tensor, str], settings: _Settings) -> None:
        take_over(self, optimizer)
        self._wrapped = optimizer
        self._start(names, settings)

    def _start(self, names: dict[torch.Tensor, str], settings: _Settings) -> None:
        self._parameter_names = names
        self._settings = settings
        self._should_synchronize = True
        self._synchronized = False
        self._reducer = None
        if is_distributed(self._process_set):
            self._reducer = GradientReducer(settings.gradients, settings.passes, settings.in_backward)
            for parameter in parameters_of(self):
                self._reducer.attach(parameter, names[parameter])
            for group in self._group_lists():
                self._reducer.group(group)

    def _group_lists(self) -> Sequence[Sequence[torch.Tensor]]:
        groups = self._settings.groups
        if not isinstance(groups, int):
            return groups or []
        # Ranks may hold their parameters in another order; rank 0's order cuts the chunks everywhere.
        members = self._process_set.ranks or [0]
        by_name = {self._parameter_names[p]: p for p in parameters_of(self) if p.requires_grad}
        order = broadcast_object(list(by_name), members[0], "DistributedOptimizer.groups", self._process_set)
        return split_list([by_name[name] for name in order if name in by_name], groups)

    @property
    def _process_set(self) -> ProcessSet:
        return self._settings.gradients.reduction.process_set

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes add to the gradients before these are reduced, an int."""
        return self._settings.passes

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """The first attribute that the step() of torch's gradient scaler reads: gradients must be reduced by then."""
        if self._reducer is not None:
            self._reducer.expect_no_scaler()
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes backward_passes_per_step to `passes`, and counts from 0 again. ValueError for less than 1."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be > 0, got {passes}")
        self._settings = replace(self._settings, passes=passes)
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds the parameters of `param_group`, which are reduced too; unnamed ones are matched by position."""
        super().add_param_group(param_group)
        for parameter in name_added(self, self._parameter_names):
            if self._reducer is not None:
                self._reducer.attach(parameter, self._parameter_names[parameter])

    def synchronize(self) -> None:
        """Waits until the gradients of all parameters are reduced, and writes them to `.grad`.

        HorovodInternalError: ranks disagree, or one is lost. RuntimeError: a gradient was changed after backward().
        """
        if self._reducer is not None and not self._reducer.is_reduced:
            self._reducer.finish()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context in which step() does not synchronise, for use after synchronize() and gradient clipping."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Synchronises the gradients, then takes the wrapped optimizer's step and returns its result.

        Gradients that `closure` computes are reduced after each call of it. Errors as for synchronize().
        """
        if self._should_synchronize:
            self._synchronize_in_step(closure is None)
        self._synchronized = False
        if self._reducer is not None:
            self._reducer.discard_reduced()
        if closure is None:
            return self._step_locally()
        return self._step_locally(self._reducing(closure))

    def _synchronize_in_step(self, computed: bool) -> None:
        """`computed`: backward() has run for this step; else a closure will compute the gradients."""
        reducer = self._reducer
        if reducer is not None and reducer.is_reduced:
            return
        begun = reducer is not None and reducer.begun
        if self._synchronized and not begun and not self._settings.in_backward:
            warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=3)
        if computed or reducer is None or begun:
            self.synchronize()

    # torch wraps the step() of every new class to run step hooks; the wrapped class' step() runs them already.
    step.hooked = True  # type: ignore[attr-defined]

    def _step_locally(self, closure: Callable[[], float] | None = None) -> Any:
        """The wrapped optimizer's step alone."""
        mark_stepped(self._wrapped)
        return super().step() if closure is None else super().step(closure)

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """`closure`, followed by the reduction of the gradients that it computed."""
        reducer = self._reducer
        if reducer is None:
            return closure
        # LBFGS decides by the loss how often it evaluates: all ranks need the same one.
        decides_by_loss = isinstance(self, torch.optim.LBFGS)

        def reduced() -> Any:
            loss = closure()
            if reducer.begun:
                reducer.finish()
            reducer.discard_reduced()
            if decides_by_loss:
                own = torch.as_tensor(loss).detach().double().reshape(1)
                average = unscaled(Average, self._process_set)
                loss = reduce_now(own, "DistributedOptimizer.loss", average)
            return loss

        return reduced

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, as of the wrapped class. AssertionError while their reduction is not finished."""
        if self._reducer is not None and self._reducer.begun:
            self._reducer.expect_unchanged()
            if self._reducer.begun:
                raise AssertionError(ZERO_GRAD_TOO_EARLY)
        super().zero_grad(set_to_none)
        if self._reducer is not None:
            self._reducer.discard_reduced()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict` into the existing groups. Finishes and discards a reduction that backward() started."""
        if self._reducer is not None:
            self._reducer.drain()
        self._synchronized = False
        with loading_in_place(self):
            super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_distributed": (self._parameter_names, self._settings),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        distributed = state.pop("_distributed", None)
        super().__setstate__(state)
        if distributed is not None:  # a copy; load_state_dict() calls this without it
            self._start(*distributed)


def _warn_without_buckets(what: str) -> None:
    warnings.warn(f"gradient_as_bucket_view has no effect with {what}", stacklevel=3)


def DistributedOptimizer(
    optimizer: Optimizer,
    named_parameters: NamedParameters | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    synchronize_in_backward: bool = False,
    gradient_as_bucket_view: bool = False,
) -> Any:
    """Wraps `optimizer`: gradients are reduced over all ranks of the set before each step.

    Returns an instance of a class with the name and the type of the wrapped one, which takes over all that it holds:
    groups, state, hooks, options. Reduction starts parameter by parameter while backward runs; step() or synchronize()
    finishes it.

    Arguments, the same on all ranks but for the values of parameters:
        optimizer: a torch.optim.Optimizer with all parameters on the CPU or a CUDA GPU.
        named_parameters: (name, parameter) tuples for all its parameters, such as model.named_parameters(). Without
            them parameters are matched between ranks by position.
        compression: Compression.fp16 or bf16 sends floating-point gradients in 16 bits.
        backward_passes_per_step: how many backward passes add to the gradients before these are reduced.
        op: Average (the default), Sum, Min, Max, Product; or Adasum, which combines steps instead of gradients.
        gradient_predivide_factor: f: gradients are multiplied by 1/f before, and by f/N after the sum over N ranks.
        groups: a number of groups, or lists of parameters, that are reduced together. `num_groups` is its deprecated
            form.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: the ranks that take part; other ranks train by themselves.
        synchronize_in_backward: backward() finishes the reduction, so that gradients may be changed right after it.
            Then every rank has to call backward() equally often, on a loss that reaches at least one of the parameters,
            and in the same order as its other collectives.
        gradient_as_bucket_view: from the second step on gradients are views of flat buckets, which are reduced as they
            are: on one host no byte is copied in or out of buckets above 8 KiB, while the shared memory has room for
            them. zero_grad(set_to_none=True), the default, costs a copy into the bucket. Gradients that can't be in a
            bucket go as always.

    ValueError: arguments that are wrong or exclude each other, an optimizer that is wrapped already, or Horovod is not
    initialised. NotImplementedError: parameters on another device, or Adasum on another set than the global one.
    step() and synchronize() raise HorovodInternalError if ranks disagree or one is lost.
    """
    if isinstance(optimizer, (_DistributedOptimizer, AdasumOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if gradient_predivide_factor != 1.0 and rocm_built():
        raise ValueError("gradient_predivide_factor not supported yet with ROCm")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be > 0, got {backward_passes_per_step}")
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if synchronize_in_backward:
        require_end_of_backward()
    check_devices(optimizer, process_set)
    names = check_names(optimizer, named_parameters)
    checked_groups = check_groups(optimizer, groups)
    wrapped = type(optimizer)
    members = {"__module__": __name__, "__doc__": wrapped.__doc__}
    if op == Adasum and size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("DistributedOptimizer: Adasum works on the global process set only")
        if gradient_as_bucket_view:
            _warn_without_buckets("op=Adasum")
        adasum = type(wrapped.__name__, (AdasumOptimizer, wrapped), members)
        return adasum(optimizer, names, compression, backward_passes_per_step)
    reduction = Reduction(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor, process_set)
    if gradient_as_bucket_view and (compression is not Compression.none or checked_groups is not None):
        _warn_without_buckets("compression" if checked_groups is None else "groups")
        gradient_as_bucket_view = False
    gradients = GradientSettings(reduction, compression, sparse_as_dense, gradient_as_bucket_view)
    distributed = type(wrapped.__name__, (_DistributedOptimizer, wrapped), members)
    settings = _Settings(gradients, backward_passes_per_step, checked_groups, synchronize_in_backward)
    return distributed(optimizer, names, settings)
