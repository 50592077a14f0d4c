"""DistributedOptimizer: wraps a torch optimizer so that each step uses the gradients of all ranks."""

from __future__ import annotations

import warnings
from typing import Any

from torch.optim import Optimizer

from horovod._common.calls import Reduction, refuse_unknown_op
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._adasum_optimizer import AdasumOptimizer
from horovod.torch._distributed_optimizer import Settings, _DistributedOptimizer
from horovod.torch._gradient import GradientSettings
from horovod.torch._private import require_end_of_backward
from horovod.torch._wrapping import (
    Groups,
    NamedParameters,
    check_devices,
    check_groups,
    check_is_optimizer,
    check_names,
    derived_class,
)
from horovod.torch.compression import Compression, Compressor
from horovod.torch.mpi_ops import Adasum, Average, rocm_built, size

__all__ = ["DistributedOptimizer"]


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

    TypeError: `optimizer` is none, or `op` no number. ValueError: arguments that are wrong or exclude each other, an
    optimizer that is wrapped already, or Horovod is not initialised. NotImplementedError: parameters on another
    device, or Adasum on another set than the global one.
    step() and synchronize() raise HorovodInternalError if ranks disagree or one is lost.
    """
    check_is_optimizer(optimizer)
    if isinstance(optimizer, (_DistributedOptimizer, AdasumOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    refuse_unknown_op(op, "DistributedOptimizer")
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
    wrapped: Any = type(optimizer)  # cache() wants Hashable, which mypy denies this class
    if op == Adasum and size() > 1:
        if process_set is not global_process_set:
            raise NotImplementedError("DistributedOptimizer: Adasum works on the global process set only")
        if gradient_as_bucket_view:
            _warn_without_buckets("op=Adasum")
        adasum = derived_class(AdasumOptimizer, wrapped)
        return adasum(optimizer, names, compression, backward_passes_per_step)
    reduction = Reduction(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor, process_set)
    if gradient_as_bucket_view and (compression is not Compression.none or checked_groups is not None):
        _warn_without_buckets("compression" if checked_groups is None else "groups")
        gradient_as_bucket_view = False
    gradients = GradientSettings(reduction, compression, sparse_as_dense, gradient_as_bucket_view)
    settings = Settings(gradients, backward_passes_per_step, checked_groups, synchronize_in_backward)
    return derived_class(_DistributedOptimizer, wrapped)(optimizer, names, settings)
