"""The form of DistributedOptimizer that combines steps instead of gradients: op=Adasum.

Every rank takes the wrapped optimizer's step by itself, parameter by parameter while backward runs, and what is reduced
is how far each parameter moved. Adasum adds deltas that are orthogonal and averages those that agree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import torch
from torch.optim import Optimizer

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import global_process_set
from horovod.torch._gradients import TOO_MANY_PASSES
from horovod.torch._hooks import Hooks
from horovod.torch._parameter_check import ParameterCheck
from horovod.torch._session import session_number
from horovod.torch._wrapping import (
    ZERO_GRAD_TOO_EARLY,
    loading_in_place,
    mark_stepped,
    name_added,
    parameters_of,
    take_over,
)
from horovod.torch.compression import Compressor
from horovod.torch.mpi_ops import Adasum, allreduce_async_, synchronize


class _Delta:
    """The way of one parameter through a step: `left` passes to go, `sent` travels under `handle`, it is `applied`."""

    __slots__ = ("applied", "ctx", "handle", "name", "parameter", "passes_left", "sent")

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.handle: int | None = None
        self.sent: torch.Tensor | None = None
        self.ctx: Any = None
        self.applied = False


class AdasumOptimizer(Optimizer):
    """The methods that an Adasum optimizer has above those of the class it wraps, which super() means here.

    Between backward and step() parameters keep the values they had: their deltas travel apart from them.
    """

    _parameter_names: dict[torch.Tensor, str]
    _wrapped: Optimizer | None = None

    def __init__(
        self, optimizer: Optimizer, names: dict[torch.Tensor, str], compression: type[Compressor], passes: int
    ) -> None:
        take_over(self, optimizer)
        self._wrapped = optimizer
        self._start(names, compression, passes)

    def _start(self, names: dict[torch.Tensor, str], compression: type[Compressor], passes: int) -> None:
        self._parameter_names = names
        self._compression = compression
        self._passes = passes
        self._check: ParameterCheck | None = ParameterCheck()
        self._deltas: dict[int, _Delta] = {}
        self._hooks = Hooks(self, AdasumOptimizer._ready)
        self._joins = core.joins()
        self._session = -1  # the one in which the latest gradient was made
        self._error: Exception | None = None
        for parameter in parameters_of(self):
            if parameter.requires_grad:
                self._attach(parameter)

    def _attach(self, parameter: torch.Tensor) -> None:
        self._deltas[id(parameter)] = _Delta(parameter, self._parameter_names[parameter], self._passes)
        self._hooks.add(parameter)

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes are accumulated before a step is taken."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes backward_passes_per_step, and starts counting anew."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be > 0, got {passes}")
        self._drain()
        self._passes = passes
        self._reset()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, which take part; those that `named_parameters` did not name get automatic names."""
        super().add_param_group(param_group)
        for parameter in name_added(self, self._parameter_names):
            if parameter.requires_grad:
                self._attach(parameter)

    # During backward

    def _ready(self, parameter: torch.Tensor) -> None:
        delta = self._deltas[id(parameter)]
        if delta.passes_left <= 0:
            raise AssertionError(TOO_MANY_PASSES)
        delta.passes_left -= 1
        self._session = session_number()
        if delta.passes_left == 0:
            self._submit(delta)

    def _submit(self, delta: _Delta) -> None:
        self._send(delta, self._local_delta(delta.parameter))

    def _send(self, delta: _Delta, local_delta: torch.Tensor) -> None:
        delta.passes_left = 0
        sent, delta.ctx = self._compression.compress(local_delta)
        delta.sent = sent.contiguous()
        delta.handle = allreduce_async_(delta.sent, name=delta.name, op=Adasum)

    @torch.no_grad()
    def _local_delta(self, parameter: torch.Tensor) -> torch.Tensor:
        """How far the wrapped optimizer's step would move this parameter. State changes, the parameter does not."""
        start = parameter.detach().clone()
        own_groups = [group["params"] for group in self.param_groups]
        for group, parameters in zip(self.param_groups, own_groups, strict=True):
            group["params"] = [p for p in parameters if p is parameter]
        try:
            self._step_locally()
        finally:
            for group, parameters in zip(self.param_groups, own_groups, strict=True):
                group["params"] = parameters
        local_delta = parameter.detach() - start
        parameter.copy_(start)
        return local_delta

    # Finishing

    def synchronize(self) -> None:
        """Does nothing: step() waits for what backward began."""

    def skip_synchronize(self) -> NoReturn:
        """Not possible with Adasum, whose reduction is the step."""
        raise AssertionError("skip_synchronize() is not supported with op=Adasum: the reduction is part of the step")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the deltas of all parameters and applies them. Goes on after KeyboardInterrupt."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Ranks without data had joined during the first step of others, who do not compare again.
        if self._check is not None and core.joins() == self._joins and self._check.is_due():
            named = [(self._parameter_names[parameter], parameter) for parameter in parameters_of(self)]
            self._check.compare(named, global_process_set)
        self._check = None  # later steps may be unequal in number, and nothing else is common to them
        try:
            self._submit_missing()
        except Exception as raised:
            self._error = self._error or raised
        for delta in self._deltas.values():
            self._apply(delta)
        error = self._error
        self._reset()
        if error is not None:
            raise error
        return loss

    # torch wraps the step of every new class to run step hooks; the wrapped class' step does that already.
    step.hooked = True  # type: ignore[attr-defined]

    def _submit_missing(self) -> None:
        for parameter in parameters_of(self):
            if parameter.requires_grad and id(parameter) not in self._deltas:
                self._attach(parameter)
        for delta in self._deltas.values():
            if delta.handle is None and not delta.applied:
                self._submit(delta)

    @torch.no_grad()
    def _apply(self, delta: _Delta) -> None:
        """Waits for one delta; notes the first error there was."""
        if delta.handle is None or delta.applied:
            return
        try:
            synchronize(delta.handle)
        except Exception as raised:
            self._error = self._error or raised
        if self._error is None and delta.sent is not None:
            delta.parameter.add_(self._compression.decompress(delta.sent, delta.ctx))
        delta.applied = True

    def _drain(self) -> None:
        """Ends what is in flight, together with ranks that began other parts of it, and forgets the results."""
        begun = any(delta.passes_left < self._passes for delta in self._deltas.values())
        if not begun or self._session != session_number():
            return
        with suppress(HorovodInternalError):
            for delta in self._deltas.values():
                if delta.handle is None and not delta.applied:
                    self._send(delta, torch.zeros_like(delta.parameter))
        for delta in self._deltas.values():
            if delta.handle is not None:
                with suppress(HorovodInternalError):
                    synchronize(delta.handle)
        self._reset()

    def _reset(self) -> None:
        for delta in self._deltas.values():
            delta.passes_left = self._passes
            delta.handle = delta.sent = delta.ctx = None
            delta.applied = False
        self._error = None

    def _step_locally(self, closure: Callable[[], Any] | None = None) -> Any:
        """The wrapped optimizer's step alone."""
        mark_stepped(self._wrapped)
        return super().step() if closure is None else super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients. AssertionError between backward and step()."""
        if any(delta.handle is not None for delta in self._deltas.values()):
            raise AssertionError(ZERO_GRAD_TOO_EARLY)
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state into the groups that are there; what backward began ends first and is forgotten."""
        self._drain()
        self._reset()
        with loading_in_place(self):
            super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_adasum": (self._parameter_names, self._compression, self._passes),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        adasum = state.pop("_adasum", None)
        super().__setstate__(state)
        if adasum is not None:  # a copy; load_state_dict comes here without
            self._start(*adasum)
