"""Everything that Horovod uses of PyTorch beyond its public API; errors name the version."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.autograd import Variable
from torch.autograd.graph import increment_version
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = [
    "DYNAMO_RULES",
    "_BatchNorm",
    "current_node",
    "current_pass",
    "skip_package",
    "missing",
    "require_end_of_backward",
    "stream_getter",
    "version_counter",
    "when_backward_ends",
]

DYNAMO_RULES = "torch._dynamo.trace_rules"

_END_OF_BACKWARD = (
    "torch._C._current_graph_task_id",
    "torch._C._current_autograd_node",
    "torch.autograd.Variable._execution_engine.queue_callback",
)


def _has(path: str) -> bool:
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name, None)
    return found is not None


def missing() -> list[str]:
    """The names that Horovod uses and this version of PyTorch lacks. Loads Dynamo, which takes a second."""
    importlib.import_module(DYNAMO_RULES)
    return [path for path in (*_END_OF_BACKWARD, f"{DYNAMO_RULES}.add", "torch.Tensor._version") if not _has(path)]


def require_end_of_backward() -> None:
    """NotImplementedError if this version does not report when a backward pass ends."""
    lacking = [path for path in _END_OF_BACKWARD if not _has(path)]
    if lacking:
        raise NotImplementedError(
            f"synchronize_in_backward=True does not work with PyTorch {torch.__version__}, which has no "
            f"{', '.join(lacking)}; leave it out and call optimizer.synchronize()"
        )


def current_pass() -> int:
    """The number of the backward pass that calls the current hook."""
    return torch._C._current_graph_task_id()


def current_node() -> Any:
    """The node of the graph that a backward pass executes; None if no pass is running."""
    return torch._C._current_autograd_node()


def when_backward_ends(function: Callable[[], None]) -> None:
    """Calls the function at the end of the backward pass that calls the current hook."""
    Variable._execution_engine.queue_callback(function)


def _count_each(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        if not tensor.is_inference():  # which has no version
            increment_version(tensor)


def version_counter() -> Callable[[Sequence[torch.Tensor]], None]:
    """What increments the versions of tensors.

    Newer versions of torch have one for several tensors at once, below a function that looks what it was given.
    """
    count: Callable[[Sequence[torch.Tensor]], None] | None = getattr(torch._C, "_increment_version", None)
    try:
        if count is not None:
            count(())
            return count
    except (TypeError, RuntimeError):
        pass  # for one tensor
    return _count_each


def _address_of_current_stream(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def stream_getter() -> Callable[[int], int]:
    """What gives the address of the stream that is current on a GPU; where torch has that, without making an object."""
    getter: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return _address_of_current_stream if getter is None else getter


def skip_package(rules: ModuleType, package: str) -> None:
    """Excludes a package from torch.compile. `rules`: the module DYNAMO_RULES."""
    add = getattr(rules, "add", None)
    if add is None:
        warnings.warn(
            f"PyTorch {torch.__version__} has no {DYNAMO_RULES}.add: torch.compile may break graphs within {package}",
            stacklevel=2,
        )
        return
    add(package)
