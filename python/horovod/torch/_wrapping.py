"""Wrapping an optimizer: taking over its attributes, checks of the names and groups of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, SupportsIndex

import torch
from torch.optim import Optimizer

from horovod import _env
from horovod.common.process_sets import ProcessSet
from horovod.torch._tensors import is_on_usable_device
from horovod.torch.mpi_ops import size

NamedParameters = Iterable[tuple[str, torch.Tensor]]
Groups = int | list[list[torch.Tensor]]

ZERO_GRAD_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)


def take_over(wrapper: Optimizer, optimizer: Optimizer) -> None:
    """Gives the wrapper all attributes of the optimizer: groups, state, hooks, options of its constructor.

    They are the same objects, so that a scheduler of the wrapped optimizer keeps working.
    """
    # Not the `step` that a scheduler has put into the wrapped object.
    wrapper.__dict__.update((name, value) for name, value in vars(optimizer).items() if name != "step")


@cache
def derived_class(methods: Any, wrapped: Any) -> Any:
    """A class with the name of `wrapped` and these methods before its own: the same one each time."""
    members = {"__module__": "horovod.torch.optimizer", "__doc__": wrapped.__doc__}
    return type(wrapped.__name__, (methods, wrapped), members)


def _empty(methods: type, wrapped: type) -> Any:
    made = derived_class(methods, wrapped)
    return made.__new__(made)


def reduce_derived(optimizer: Optimizer, protocol: SupportsIndex) -> str | tuple[Any, ...]:
    """What pickle and copy make a copy from: no module has a derived class, so these two could not name it."""
    bases = type(optimizer).__bases__
    if len(bases) != 2 or derived_class(*bases) is not type(optimizer):
        return object.__reduce_ex__(optimizer, protocol)
    return _empty, bases, optimizer.__getstate__()


def mark_stepped(optimizer: Optimizer | None) -> None:
    """Marks a step as taken, for schedulers of the wrapped optimizer, which warn if theirs comes first."""
    if optimizer is not None:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1  # type: ignore[attr-defined]  # torch < 2.4


@contextmanager
def loading_in_place(optimizer: Optimizer) -> Iterator[None]:
    """A context in which loading updates the existing dictionaries, which schedulers and the wrapped optimizer hold."""
    groups, members, state = optimizer.param_groups, list(optimizer.param_groups), optimizer.state
    yield
    for own, loaded in zip(members, optimizer.param_groups, strict=True):
        if own is not loaded:
            own.clear()
            own.update(loaded)
    groups[:] = members
    optimizer.param_groups = groups
    if optimizer.state is not state:
        state.clear()
        state.update(optimizer.state)
        optimizer.state = state


def named_by_position(optimizer: Optimizer, names: dict[torch.Tensor, str]) -> Iterator[torch.Tensor]:
    """All parameters; those without a name get one by position, unlike that of any before them."""
    for index, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            if parameter not in names:
                name = f"allreduce.noname.{index}.{position}"
                while name in names.values():
                    name += ".new"
                names[parameter] = name
            yield parameter


def check_is_optimizer(optimizer: Any) -> None:
    """TypeError for what is none: a model, most often. What has an optimizer's groups is taken as one."""
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        kind = type(optimizer).__name__
        raise TypeError(f"DistributedOptimizer: expected a torch.optim.Optimizer, got {kind}")


def parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    return chain.from_iterable(group["params"] for group in optimizer.param_groups)


def is_distributed(process_set: ProcessSet) -> bool:
    """Whether gradients of this process are reduced: it is a member, and other ranks exist or may be added."""
    return bool(process_set.included()) and (size() > 1 or _env.elastic())


def check_names(optimizer: Optimizer, named_parameters: NamedParameters | None) -> dict[torch.Tensor, str]:
    """A name for every parameter of the optimizer. ValueError if the given ones are not unique or not complete."""
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
    unnamed = sum(1 for parameter in parameters_of(optimizer) if parameter not in names)
    if unnamed:
        raise ValueError(
            f"named_parameters was given, but {unnamed} parameter(s) of the optimizer are not in it; "
            "give the names of all, for example model.named_parameters()"
        )
    return names


def check_devices(optimizer: Optimizer, process_set: ProcessSet) -> None:
    """NotImplementedError for parameters whose gradients cannot be reduced: those on unknown devices."""
    if not is_distributed(process_set):
        return
    for parameter in parameters_of(optimizer):
        if not is_on_usable_device(parameter):
            raise NotImplementedError(
                f"DistributedOptimizer: a parameter of shape {list(parameter.shape)} is on '{parameter.device}', but "
                "collectives on devices other than the CPU and CUDA GPUs are not built yet; keep the model on one of "
                "them (model.cpu() before the optimizer is made)"
            )


def check_groups(optimizer: Optimizer, groups: Any) -> Groups | None:
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
    own = {id(parameter) for parameter in parameters_of(optimizer)}
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
