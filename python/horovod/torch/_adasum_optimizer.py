"""The form of DistributedOptimizer that combines steps instead of gradients: op=Adasum.

Every rank takes the wrapped optimizer's step by itself, parameter by parameter while backward runs. Then the ranks
reduce the deltas: by how much each parameter changed. Adasum adds orthogonal deltas and averages those that agree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, SupportsIndex

import torch
from torch.optim import Optimizer

from horovod._common.native import core
from horovod._common.session import follow_sessions, is_initialized
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import global_process_set
from horovod.torch._hooks import Hooks, too_many_passes
from horovod.torch._parameter_check import ParameterCheck
from horovod.torch._session import session_number
from horovod.torch._wrapping import (
    ZERO_GRAD_TOO_EARLY,
    loading_in_place,
    mark_stepped,
    named_by_position,
    parameters_of,
    reduce_derived,
    take_over,
)
from horovod.torch.compression import Compressor
from horovod.torch.mpi_ops import Adasum, allreduce_async_, synchronize


class _Delta:
    """The delta of one parameter in one step.

    After the last of `passes_left` backward passes the tensor `sent` is reduced under `handle`; then it is `applied`.
    """

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
    """The methods that an Adasum optimizer adds to the wrapped class, to which super() refers here.

    Between backward and step() parameters keep their values: deltas are tensors of their own.
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
        follow_sessions(self)
        self._hooks = Hooks(self, AdasumOptimizer._ready)
        self._joins = core.joins()
        self._session = -1  # number of the session in which the latest gradient was computed
        self._error: Exception | None = None
        self._attach_new()

    def _attach_new(self) -> None:
        """Also those that came into the groups in another way than by add_param_group()."""
        for parameter in named_by_position(self, self._parameter_names):
            if parameter.requires_grad and id(parameter) not in self._deltas:
                self._attach(parameter)

    def _attach(self, parameter: torch.Tensor) -> None:
        self._deltas[id(parameter)] = _Delta(parameter, self._parameter_names[parameter], self._passes)
        self._hooks.add(parameter)

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes add to the gradients before a step, an int."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes backward_passes_per_step to `passes`, and counts from 0 again. ValueError for less than 1."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be > 0, got {passes}")
        self._drain()
        self._passes = passes
        self._reset()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds the parameters of `param_group`, which take part; unnamed ones are matched by position."""
        super().add_param_group(param_group)
        self._attach_new()

    # During backward

    def _ready(self, parameter: torch.Tensor) -> None:
        delta = self._deltas[id(parameter)]
        if delta.passes_left <= 0:
            raise too_many_passes()
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
        """By how much the wrapped optimizer's step changes this parameter. Updates the state, not the parameter."""
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
        """Does nothing: step() waits for the reductions that backward() has started."""

    def skip_synchronize(self) -> NoReturn:
        """AssertionError: with Adasum the reduction is part of the step."""
        raise AssertionError("skip_synchronize() is not supported with op=Adasum: the reduction is part of the step")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the deltas of all parameters and applies them. Returns the loss of `closure`, if that is given.

        HorovodInternalError: ranks disagree, or one is lost. After KeyboardInterrupt it may be called again.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # After a join nothing is compared: ranks that had joined did not take the same steps.
        if self._check is not None and core.joins() == self._joins and self._check.is_due():
            named = [(self._parameter_names[parameter], parameter) for parameter in parameters_of(self)]
            self._check.compare(named, global_process_set)
        self._check = None  # only before the first step: ranks may take unequal numbers of steps
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

    # torch wraps the step() of every new class to run step hooks; the wrapped class' step() runs them already.
    step.hooked = True  # type: ignore[attr-defined]

    def _submit_missing(self) -> None:
        self._attach_new()
        for delta in self._deltas.values():
            if delta.handle is None and not delta.applied:
                self._submit(delta)

    @torch.no_grad()
    def _apply(self, delta: _Delta) -> None:
        """Waits for one delta and applies it; keeps the first error."""
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
        """Completes the step that ranks have started, so that no rank waits, and discards the results."""
        begun = any(delta.passes_left < self._passes for delta in self._deltas.values())
        if not begun:
            return
        if self._session != session_number() or not is_initialized():
            self._reset()
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

    def on_session_start(self) -> None:
        """Forgets the step that was begun in an earlier session; its operations have ended with that."""
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
        """Clears the gradients, as of the wrapped class. AssertionError between backward and step()."""
        if any(delta.handle is not None for delta in self._deltas.values()):
            raise AssertionError(ZERO_GRAD_TOO_EARLY)
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict` into the existing groups. Completes and discards a step that backward() has started."""
        self._drain()
        self._reset()
        with loading_in_place(self):
            super().load_state_dict(state_dict)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        return reduce_derived(self, protocol)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_adasum": (self._parameter_names, self._compression, self._passes),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        adasum = state.pop("_adasum", None)
        super().__setstate__(state)
        if adasum is not None:  # a copy; load_state_dict() calls this without it
            self._start(*adasum)
