"""DistributedOptimizer: wraps a torch optimizer so that each step uses the gradients of all ranks."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from horovod import _env
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.torch._gradients import GradientReducer, ReductionSettings
from horovod.torch.compression import Compression, Compressor
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import Adasum, Average, rocm_built, size

__all__ = ["DistributedOptimizer"]

NamedParameters = Iterable[tuple[str, torch.Tensor]]
Groups = int | list[list[torch.Tensor]]

_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
    "if you use optimizer.synchronize() in your code."
)
_ZERO_GRAD_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)


@dataclass(frozen=True)
class _Settings:
    """The arguments of DistributedOptimizer, checked."""

    reduction: ReductionSettings
    passes: int
    groups: Groups | None


class _DistributedOptimizer(Optimizer):
    """The methods that a distributed optimizer has above those of the class it wraps.

    DistributedOptimizer() makes a class of this one and the wrapped one, which super() means here.
    """

    _parameter_names: dict[torch.Tensor, str]
    _settings: _Settings
    _reducer: GradientReducer | None

    def __init__(self, optimizer: Optimizer, names: dict[torch.Tensor, str], settings: _Settings) -> None:
        arguments = _constructor_arguments(optimizer)
        if arguments is None:
            _adopt(self, optimizer)
        else:
            super().__init__(optimizer.param_groups, **arguments)
        self._start(names, settings)

    def _start(self, names: dict[torch.Tensor, str], settings: _Settings) -> None:
        self._parameter_names = names
        self._settings = settings
        self._should_synchronize = True
        self._synchronized = False
        self._reducer = None
        if _is_distributed(settings.reduction.process_set):
            self._reducer = GradientReducer(settings.reduction, settings.passes)
            for parameter in _parameters_of(self):
                self._reducer.attach(parameter, names[parameter])
            for group in self._group_lists():
                self._reducer.group(group)

    def _group_lists(self) -> Sequence[Sequence[torch.Tensor]]:
        groups = self._settings.groups
        if not isinstance(groups, int):
            return groups or []
        # Ranks may hold their parameters in another order; rank 0's order cuts the chunks everywhere.
        members = self._settings.reduction.process_set.ranks or [0]
        by_name = {self._parameter_names[p]: p for p in _parameters_of(self) if p.requires_grad}
        order = broadcast_object(list(by_name), members[0], "DistributedOptimizer.groups", self._process_set)
        return split_list([by_name[name] for name in order if name in by_name], groups)

    @property
    def _process_set(self) -> ProcessSet:
        return self._settings.reduction.process_set

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes are accumulated before gradients are reduced."""
        return self._settings.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes backward_passes_per_step, and starts counting anew."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be > 0, got {passes}")
        self._settings = _Settings(self._settings.reduction, passes, self._settings.groups)
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters; those added after wrapping get automatic names."""
        super().add_param_group(param_group)
        if "_parameter_names" not in self.__dict__:
            return  # still in the constructor
        index = len(self.param_groups) - 1
        for position, parameter in enumerate(self.param_groups[index]["params"]):
            if parameter not in self._parameter_names:
                self._parameter_names[parameter] = f"allreduce.noname.{index}.{position}"
                if self._reducer is not None:
                    self._reducer.attach(parameter, self._parameter_names[parameter])

    def synchronize(self) -> None:
        """Waits until the gradients of all parameters are reduced and writes them to `.grad`."""
        if self._reducer is not None:
            self._reducer.finish()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it step() does not synchronise: for use after synchronize(), gradient clipping for example."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Synchronises the gradients, then takes the wrapped optimizer's step."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return self._step_locally(closure)

    # torch wraps the step of every new class to run step hooks; the wrapped class' step does that already.
    step.hooked = True  # type: ignore[attr-defined]

    def _step_locally(self, closure: Callable[[], float] | None = None) -> Any:
        """The wrapped optimizer's step alone."""
        return super().step() if closure is None else super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients. AssertionError while reduced gradients are still on their way."""
        if self._reducer is not None and self._reducer.begun:
            raise AssertionError(_ZERO_GRAD_TOO_EARLY)
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state; what backward began is forgotten."""
        if self._reducer is not None:
            self._reducer.reset()
        self._synchronized = False
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_distributed": (self._parameter_names, self._settings),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        distributed = state.pop("_distributed", None)
        super().__setstate__(state)
        if distributed is not None:  # a copy; load_state_dict comes here without
            self._start(*distributed)


def _constructor_arguments(optimizer: Optimizer) -> dict[str, Any] | None:
    """What to call the wrapped class' constructor with besides parameters; None when its needs are not known.

    The constructor matters: Adagrad fills its state there.
    """
    parameters = list(inspect.signature(type(optimizer).__init__).parameters.values())[2:]
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in optimizer.defaults and parameter.kind is not parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = optimizer.defaults[parameter.name]
        elif parameter.default is parameter.empty:
            return None
    return arguments


def _adopt(wrapper: Optimizer, optimizer: Optimizer) -> None:
    """Takes over groups, defaults and own attributes of an optimizer whose constructor cannot be called again."""
    of_torch = {"defaults", "param_groups", "state", "step"}
    for name, value in vars(optimizer).items():
        if name not in of_torch and not name.startswith("_optimizer_"):
            wrapper.__dict__[name] = value
    Optimizer.__init__(wrapper, optimizer.param_groups, dict(optimizer.defaults))


def _parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _is_distributed(process_set: ProcessSet) -> bool:
    """Whether gradients of this process are reduced: it is a member, and there are or may be other ranks."""
    return bool(process_set.included()) and (size() > 1 or _env.is_one("HOROVOD_ELASTIC"))


def _check_names(optimizer: Optimizer, named_parameters: NamedParameters | None) -> dict[torch.Tensor, str]:
    """A name for every parameter of the optimizer. ValueError where the given ones do not do."""
    if named_parameters is None:
        return {
            parameter: f"allreduce.noname.{group}.{position}"
            for group, options in enumerate(optimizer.param_groups)
            for position, parameter in enumerate(options["params"])
        }
    given: list[Any] = list(named_parameters)
    for element in given:
        if not isinstance(element, tuple) or len(element) != 2:
            raise ValueError(
                "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                f"model.named_parameters(); found {type(element).__name__}"
            )
    duplicates = sorted(name for name, times in Counter(name for name, _ in given).items() if times > 1)
    if duplicates:
        raise ValueError(f"parameter names in named_parameters must be unique; found twice: {', '.join(duplicates)}")
    names: dict[torch.Tensor, str] = {}
    for name, parameter in given:
        names.setdefault(parameter, name)
    unnamed = sum(1 for parameter in _parameters_of(optimizer) if parameter not in names)
    if unnamed:
        raise ValueError(
            f"named_parameters was given, but {unnamed} parameter(s) of the optimizer are not in it; "
            "give the names of all, for example model.named_parameters()"
        )
    return names


def _check_groups(optimizer: Optimizer, groups: Any) -> Groups | None:
    """`groups` in a usable form. ValueError for anything else than None, an int > 0 or lists of own parameters."""
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups <= 0:
            raise ValueError(f"groups should be a positive integer or a list of lists of parameters, got {groups}")
        return groups
    if not isinstance(groups, list):
        raise ValueError(
            f"groups should be a positive integer or a list of lists of parameters, got {type(groups).__name__}"
        )
    own = {id(parameter) for parameter in _parameters_of(optimizer)}
    seen: set[int] = set()
    for number, group in enumerate(groups):
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError(f"groups[{number}] must consist of tensors, found {type(parameter).__name__}")
            if id(parameter) in seen:
                raise ValueError(f"a parameter of shape {list(parameter.shape)} appears twice in groups")
            if id(parameter) not in own:
                raise ValueError(f"groups[{number}] has a parameter that is not in the optimizer")
            seen.add(id(parameter))
    return [list(group) for group in groups]


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
) -> Any:
    """Wraps `optimizer`: its gradients are reduced over all ranks of `process_set` before each step.

    The result is an instance of a class with the name and the type of the wrapped one, made from its param_groups;
    state that the wrapped one has gathered is not copied. Reduction starts parameter by parameter while backward runs.
    """
    if isinstance(optimizer, _DistributedOptimizer):
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
    names = _check_names(optimizer, named_parameters)
    checked_groups = _check_groups(optimizer, groups)
    if op == Adasum and size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("DistributedOptimizer: Adasum works on the global process set only")
        raise NotImplementedError("DistributedOptimizer: op=Adasum is not built yet")
    reduction = ReductionSettings(
        compression=compression,
        op=op,
        prescale=1.0 / gradient_predivide_factor,
        postscale=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    wrapped = type(optimizer)
    members = {"__module__": __name__, "__doc__": wrapped.__doc__}
    distributed = type(wrapped.__name__, (_DistributedOptimizer, wrapped), members)
    return distributed(optimizer, names, _Settings(reduction, backward_passes_per_step, checked_groups))
