"""Reduction of gradients, by itself and as part of an optimizer of optax."""

from __future__ import annotations

import importlib
from typing import Any

from horovod import _env
from horovod._common.gradient_options import check_arguments, plan_groups
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._primitive import run
from horovod.jax._work import Work, as_array
from horovod.jax.compression import Compression

__all__ = ["DistributedOptimizer", "allreduce_gradients"]

jax: Any = importlib.import_module("jax")


def _is_alone(process_set: ProcessSet) -> bool:
    """Whether there are no other ranks, nor may be."""
    return process_set.size() == 1 and bool(process_set.included()) and not _env.elastic()


def _check(caller: str, op: int, gradient_predivide_factor: float, groups: int | None) -> None:
    if op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
        raise ValueError(f"hvd.{caller}: op currently only supports Average and Sum")
    check_arguments(op, gradient_predivide_factor, 0, groups)


def allreduce_gradients(
    gradients: Any,
    name: str = "gradients",
    compression: Any = Compression.none,
    op: int = core.REDUCE_AVERAGE,
    gradient_predivide_factor: float = 1.0,
    groups: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The gradients of all ranks of the set, reduced: a tree like `gradients`.

    Inside a function that JAX compiles, one call of the program reduces all of them.

    Arguments, the same on all ranks but for the elements:
        gradients: a tree of arrays, as jax.grad() returns it; None is no array.
        name: begins the names of the arrays. Reductions that are under way at once need different ones.
        compression: Compression.fp16 sends floating-point elements as float16.
        op: Average (the default) or Sum.
        gradient_predivide_factor: `f`: with Average, gradients are multiplied by `1/f` before the sum, `f/N` after it.
        groups: so many groups of arrays are reduced together, each when all of it is ready on all ranks; None: each
            array by itself.
        process_set: the ranks that take part, this one among them.

    ValueError and other errors as for allreduce(). A rank alone gets `gradients` back.
    """
    _check("allreduce_gradients()", op, gradient_predivide_factor, groups)
    leaves, structure = jax.tree_util.tree_flatten_with_path(gradients)
    if not leaves or _is_alone(process_set):
        return gradients
    compressed = [compression.compress(as_array(leaf, "allreduce_gradients")) for _, leaf in leaves]
    plan = plan_groups(groups, leaves, id)
    names = tuple(f"{name}{jax.tree_util.keystr(path)}" for path, _ in leaves)
    if plan:
        names = tuple(f"{name}.group_{number}" for number in range(len(plan)))
    factor = float(gradient_predivide_factor)
    sizes = tuple(map(len, plan))
    # Groups are runs of leaves, so the order of the leaves is theirs.
    work = Work(core.OP_ALLREDUCE, names, sizes, op, 1.0 / factor, factor, process_set)
    reduced = run(work, [array for array, _ in compressed])
    made = [compression.decompress(array, context) for array, (_, context) in zip(reduced, compressed, strict=True)]
    return jax.tree_util.tree_unflatten(structure, made)


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    op: int = core.REDUCE_AVERAGE,
    groups: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer of optax like `optimizer`, whose update() reduces the gradients over all ranks first.

    `optimizer`: an optax.GradientTransformation, also one with extra arguments; its state stays as it is. `name`: two
    optimizers whose updates may be under way at once need different ones. Other arguments as for allreduce_gradients().
    ValueError for other optimizers, and wrong options.

    >>> optimizer = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))
    """
    if not (callable(getattr(optimizer, "update", None)) and callable(getattr(optimizer, "_replace", None))):
        hint = (
            "; give its gradient_transformation(), or put it around hvd.DistributedOptimizer()"
            if hasattr(optimizer, "gradient_transformation")
            else ""
        )
        raise ValueError(
            f"hvd.DistributedOptimizer: expected an optax.GradientTransformation, got {type(optimizer).__name__}{hint}"
        )
    _check("DistributedOptimizer", op, gradient_predivide_factor, groups)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        reduced = allreduce_gradients(
            updates, name or "DistributedOptimizer", compression, op, gradient_predivide_factor, groups, process_set
        )
        return optimizer.update(reduced, state, params, **extra)

    return optimizer._replace(update=update)
