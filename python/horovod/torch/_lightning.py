"""What HorovodStrategy is made of: which Lightning there is, how ranks are numbered for it, checks of arguments,
reductions by Lightning's names, and metrics of torchmetrics.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import torch

import horovod.torch as hvd
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import Compressor

# The trainer's package, and the one below it.
_PACKAGES = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}
_OPS = {"sum": hvd.Sum, "mean": hvd.Average, "avg": hvd.Average, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def find_lightning() -> str:
    """The name of Lightning's package: the one that was imported first, else one that is installed.

    A strategy of one package is none to the trainer of the other. ImportError: there is none, or it is older than 2.0.
    """
    imported = [name for name, module in list(sys.modules.items()) if name in _PACKAGES and module is not None]
    found = imported or [*filter(_is_installed, _PACKAGES)]
    if not found:
        raise ImportError(
            "horovod.torch.lightning needs Lightning 2.0 or newer, and neither pytorch_lightning nor lightning is "
            "installed: pip install pytorch-lightning"
        )
    version = str(importlib.import_module(found[0]).__version__)
    if int(version.split(".", maxsplit=1)[0]) < 2:
        raise ImportError(
            f"horovod.torch.lightning needs Lightning 2.0 or newer, and {found[0]} {version} is installed: "
            "pip install -U pytorch-lightning"
        )
    return found[0]


PACKAGE = find_lightning()
strategies: Any = importlib.import_module(f"{PACKAGE}.strategies")
rank_zero_only: Any = importlib.import_module("lightning_utilities.core.rank_zero").rank_zero_only
_environments: Any = importlib.import_module(f"{_PACKAGES[PACKAGE]}.plugins.environments")


class HorovodEnvironment(_environments.ClusterEnvironment):  # type: ignore[misc]
    """Tells Lightning the numbers that Horovod has given to the ranks. Requires: hvd.init() was called."""

    @property
    def creates_processes_externally(self) -> bool:
        """True: horovodrun has started the processes."""
        return True

    @property
    def main_address(self) -> str:
        """RuntimeError: ranks do not meet at an address that Lightning knows."""
        raise RuntimeError("ranks of Horovod meet by themselves; there is no main_address for torch.distributed")

    @property
    def main_port(self) -> int:
        """RuntimeError, as for main_address."""
        raise RuntimeError("ranks of Horovod meet by themselves; there is no main_port for torch.distributed")

    @staticmethod
    def detect() -> bool:
        """False: Lightning is to use it with HorovodStrategy only."""
        return False

    def world_size(self) -> int:
        """The number of ranks."""
        return hvd.size()

    def set_world_size(self, size: int) -> None:
        """Does nothing: `size` is decided by who starts the job."""

    def global_rank(self) -> int:
        """The rank of this process."""
        return hvd.rank()

    def set_global_rank(self, rank: int) -> None:
        """Does nothing: `rank` is decided by who starts the job."""

    def local_rank(self) -> int:
        """The rank of this process among those of its host."""
        return hvd.local_rank()

    def node_rank(self) -> int:
        """The number of this host among those with a rank of this local rank."""
        return hvd.cross_rank()


def check_options(compression: Any, op: Any, groups: Any) -> None:
    """ValueError for arguments of HorovodStrategy that it cannot use."""
    if not (isinstance(compression, type) and issubclass(compression, Compressor)):
        raise ValueError(f"HorovodStrategy: compression must be hvd.Compression.fp16 or the like, got {compression!r}")
    if op == hvd.Adasum:
        raise ValueError("HorovodStrategy: op=hvd.Adasum steps during backward(), before Lightning clips; use Average")
    if isinstance(op, bool) or op not in list(_OPS.values()):
        raise ValueError(f"HorovodStrategy: op must be hvd.Average, Sum, Min, Max or Product, got {op!r}")
    if groups is not None and (isinstance(groups, bool) or not isinstance(groups, int) or groups <= 0):
        raise ValueError(f"HorovodStrategy: groups must be None or an int > 0, got {groups!r}")


def check_devices(devices: list[torch.device], ranks: int) -> None:
    """ValueError for devices of a trainer that do not fit the `ranks` of this host, each of which uses one."""
    kind, count = devices[0].type, len(devices)
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"HorovodStrategy works on the CPU and on NVIDIA GPUs, not on {kind!r}")
    if count != 1 and (count < ranks or (kind == "cpu" and count > ranks)):
        raise ValueError(
            f"Trainer(devices={count}): this host has {ranks} process(es) of the job, with one device each; "
            "leave devices=1 and choose their number by horovodrun -np"
        )


def process_set_of(group: Any) -> ProcessSet:
    """The process set for a `group` of Lightning: None is all ranks. ValueError for another type's."""
    if group is None:
        return global_process_set
    if isinstance(group, ProcessSet):
        return group
    raise ValueError(f"HorovodStrategy: group must be None or a hvd.ProcessSet, got {group!r}")


def reduce(tensor: torch.Tensor, group: Any, reduce_op: Any) -> torch.Tensor:
    """A new tensor: `tensor` of any shape, reduced over the ranks of `group`. Averages of integers are floats.

    `reduce_op`: "mean", "avg", "sum", "min", "max", "product", one of torch.distributed.ReduceOp, or None, the mean.
    ValueError: another one.
    """
    word = "mean" if reduce_op is None else str(getattr(reduce_op, "name", reduce_op)).lower()
    if word not in _OPS:
        raise ValueError(f"HorovodStrategy: reduce_op must be one of {', '.join(_OPS)}, got {reduce_op!r}")
    value = tensor.detach()
    if _OPS[word] == hvd.Average and not (value.is_floating_point() or value.is_complex()):
        value = value.to(torch.get_default_dtype())
    return hvd.allreduce(value, op=_OPS[word], process_set=process_set_of(group))


def all_gather(tensor: torch.Tensor, group: Any, sync_grads: bool) -> torch.Tensor:
    """The tensors of all N ranks of `group`, which have one shape `s`, as one of shape (N, *s).

    `sync_grads`: it may be differentiated; a rank's tensor then gets the sum of the gradients that ranks have for it.
    """
    process_set = process_set_of(group)
    with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
        row = tensor.unsqueeze(0)
        if row.requires_grad:
            ranks = process_set.size() or 1
            # hvd.allgather's gradient is the average over ranks.
            row.register_hook(lambda gradient: gradient * ranks)  # type: ignore[no-untyped-call]
        return hvd.allgather(row, process_set=process_set)


def gather_state(state: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
    """The tensors of all ranks in rank order; shapes may differ. It is what torchmetrics calls dist_sync_fn."""
    process_set_of(group)  # torchmetrics' process groups are refused
    shapes: list[torch.Size] = hvd.allgather_object(state.shape)
    parts = torch.split(hvd.allgather(state.detach().reshape(-1)), [shape.numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def are_several() -> bool:
    """Whether there are other ranks: torchmetrics' distributed_available_fn."""
    return bool(hvd.is_initialized()) and hvd.size() > 1


def mend_logging() -> None:
    """Lightning 2.0 reduces what log(..., sync_dist=True) gets only where torch.distributed is in use; 2.1 asks the
    strategy. Makes 2.0 do it on Horovod's ranks, too.
    """
    module: Any = importlib.import_module(f"{PACKAGE}.core.module")
    asked = getattr(module, "_distributed_available", None)
    if asked is not None:
        module._distributed_available = lambda: are_several() or asked()


def share_metrics(module: torch.nn.Module) -> None:
    """Makes the torchmetrics in `module` gather their states with Horovod, unless they have a way of their own."""
    from torchmetrics import Metric

    for metric in module.modules():
        if isinstance(metric, Metric) and metric.dist_sync_fn is None:
            metric.dist_sync_fn = gather_state
            metric.distributed_available_fn = are_several


# What a distributed optimizer does otherwise than other optimizers of torch, but for step(), which is the strategy's.
_OURS = (
    "add_param_group",
    "load_state_dict",
    "set_backward_passes_per_step",
    "skip_synchronize",
    "synchronize",
    "zero_grad",
)


def hand_over(shown: Any) -> None:
    """Makes a LightningOptimizer call the methods of the optimizer within it.

    It has that one's class, but not what is in it, so the methods would find neither reducer nor settings.
    """
    if hasattr(shown.optimizer, "_parameter_names"):
        for name in _OURS:
            setattr(shown, name, getattr(shown.optimizer, name))


def names_of(
    optimizer: torch.optim.Optimizer, number: int, module: torch.nn.Module
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, parameter) for all of an optimizer: the name in `module`, if it is there, else one by position.

    Optimizers may share parameters, so `number`, the optimizer's, is part of the name.
    """
    in_module = {id(parameter): name for name, parameter in module.named_parameters()}
    for index, group in enumerate(optimizer.param_groups):
        for position, parameter in enumerate(group["params"]):
            yield f"optimizer.{number}.{in_module.get(id(parameter), f'{index}.{position}')}", parameter
