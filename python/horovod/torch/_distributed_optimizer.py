"""The methods of a distributed optimizer that reduces gradients. optimizer.py checks the arguments and makes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import torch
from torch.optim import Optimizer

from horovod._common.calls import unscaled
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.torch._allreduce import reduce_now
from horovod.torch._gradient import GradientSettings
from horovod.torch._gradients import GradientReducer
from horovod.torch._wrapping import (
    ZERO_GRAD_TOO_EARLY,
    Groups,
    is_distributed,
    loading_in_place,
    mark_stepped,
    named_by_position,
    parameters_of,
    reduce_derived,
    take_over,
)
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import Average

_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
    "if you use optimizer.synchronize() in your code."
)

_ADDED_TOO_LATE = (
    "parameters have come into the optimizer's groups without add_param_group(), and backward() has not reduced their "
    "gradients. Call optimizer.zero_grad() after adding parameters, before backward()."
)


@dataclass(frozen=True)
class Settings:
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
    _settings: Settings
    _reducer: GradientReducer | None = None
    _wrapped: Optimizer | None = None

    def __init__(self, optimizer: Optimizer, names: dict[torch.Tensor, str], settings: Settings) -> None:
        take_over(self, optimizer)
        self._wrapped = optimizer
        self._start(names, settings)

    def _start(self, names: dict[torch.Tensor, str], settings: Settings) -> None:
        self._parameter_names = names
        self._settings = settings
        self._should_synchronize = True
        self._synchronized = False
        self._reducer = None
        self._attached: list[int] = []  # ids of parameters, in the order of the groups
        groups = self._group_lists()
        self._settings = replace(settings, groups=groups)  # for copies, which one rank alone may make, in any world
        if is_distributed(self._process_set):
            self._reducer = GradientReducer(settings.gradients, settings.passes, settings.in_backward)
        self._attach_new()
        if self._reducer is not None:
            for group in groups or []:
                self._reducer.group(group)

    def _group_lists(self) -> list[list[torch.Tensor]] | None:
        groups = self._settings.groups
        if not isinstance(groups, int):
            return groups
        by_name = {self._parameter_names[p]: p for p in parameters_of(self) if p.requires_grad}
        order = list(by_name)
        if is_distributed(self._process_set):
            # Ranks may hold their parameters in another order; rank 0's order cuts the chunks everywhere.
            members = self._process_set.ranks or [0]
            order = broadcast_object(order, members[0], "DistributedOptimizer.groups", self._process_set)
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
        self._attach_new()

    def _attach_new(self) -> list[torch.Tensor]:
        """Returns the new ones. They may come through the wrapped optimizer, or be put into a group's list."""
        now = list(map(id, parameters_of(self)))
        if now == self._attached:
            return []
        known = set(self._attached)
        new = [each for each in named_by_position(self, self._parameter_names) if id(each) not in known]
        self._attached = now
        if self._reducer is not None:
            for parameter in new:
                self._reducer.attach(parameter, self._parameter_names[parameter])
        return new

    def synchronize(self) -> None:
        """Waits until the gradients of all parameters are reduced, and writes them to `.grad`.

        HorovodInternalError: ranks disagree, or one is lost. RuntimeError: a gradient was changed after backward().
        """
        if self._reducer is not None and not self._reducer.is_reduced:
            self._attach_new()
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
            if any(parameter.grad is not None for parameter in self._attach_new()):
                raise RuntimeError(_ADDED_TOO_LATE)
            return
        begun = reducer is not None and reducer.begun
        if self._synchronized and not begun and not self._settings.in_backward:
            warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=3)
        if computed or reducer is None or begun:
            self.synchronize()

    # torch wraps the step() of every new class to run step hooks; the wrapped class' step() runs them already.
    step.hooked = True  # type: ignore[attr-defined]
    # A scheduler may hold this optimizer or the wrapped one: _step_locally() marks both, which schedulers do else.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _step_locally(self, closure: Callable[[], float] | None = None) -> Any:
        """The wrapped optimizer's step alone."""
        mark_stepped(self._wrapped)
        mark_stepped(self)
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
            self._attach_new()
            if reducer.begun:
                reducer.finish()
            reducer.discard_reduced()
            if decides_by_loss:
                own = loss if isinstance(loss, torch.Tensor) else torch.tensor(loss, device="cpu")
                one = own.detach().double().reshape(1)
                average = reduce_now(one, "DistributedOptimizer.loss", unscaled(Average, self._process_set))
                loss = average.reshape(own.shape).to(own) if own is loss else average.item()
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
            if self._settings.in_backward:  # step() is too late
                self._attach_new()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict` into the existing groups. Finishes and discards a reduction that backward() started."""
        if self._reducer is not None:
            self._reducer.drain()
        self._synchronized = False
        with loading_in_place(self):
            super().load_state_dict(state_dict)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return reduce_derived(self, protocol)

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
