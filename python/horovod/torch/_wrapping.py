"""What wrapping an optimizer needs: arguments for its constructor, checks of the names and groups of parameters."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from horovod import _env
from horovod.common.process_sets import ProcessSet
from horovod.torch.mpi_ops import size

NamedParameters = Iterable[tuple[str, torch.Tensor]]
Groups = int | list[list[torch.Tensor]]

ZERO_GRAD_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)


def constructor_arguments(optimizer: Optimizer) -> dict[str, Any] | None:
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


def adopt(wrapper: Optimizer, optimizer: Optimizer) -> None:
    """Takes over groups, defaults and own attributes of an optimizer whose constructor cannot be called again."""
    of_torch = {"defaults", "param_groups", "state", "step"}
    for name, value in vars(optimizer).items():
        if name not in of_torch and not name.startswith("_optimizer_"):
            wrapper.__dict__[name] = value
    Optimizer.__init__(wrapper, optimizer.param_groups, dict(optimizer.defaults))


def parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def is_distributed(process_set: ProcessSet) -> bool:
    """Whether gradients of this process are reduced: it is a member, and there are or may be other ranks."""
    return bool(process_set.included()) and (size() > 1 or _env.is_one("HOROVOD_ELASTIC"))


def check_names(optimizer: Optimizer, named_parameters: NamedParameters | None) -> dict[torch.Tensor, str]:
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
    unnamed = sum(1 for parameter in parameters_of(optimizer) if parameter not in names)
    if unnamed:
        raise ValueError(
            f"named_parameters was given, but {unnamed} parameter(s) of the optimizer are not in it; "
            "give the names of all, for example model.named_parameters()"
        )
    return names


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
