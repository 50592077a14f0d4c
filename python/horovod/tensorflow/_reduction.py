"""Reduction of a list of gradients, for optimizers and tapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from horovod import _env
from horovod._common.gradient_options import Options, Plan, in_places, plan_groups
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._collectives import AVERAGE, allreduce_each, grouped_allreduce
from horovod.tensorflow._dense import process_set_included_op, size_op
from horovod.tensorflow._session import basics, set_id
from horovod.tensorflow.compression import Compressor
from horovod.tensorflow.util import _executing_eagerly, _make_subgraph, variable_name

Grads = Sequence[Any]
ReduceFn = Callable[..., list[Any]]


class GradientReduction:
    """Reduces lists of gradients with the same options. None stays None. Caches its graphs for eager mode."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._options = options
        self._process_set = options.process_set
        prescale, postscale = options.factors
        self._common: dict[str, Any] = {
            "device_dense": options.device_dense,
            "device_sparse": options.device_sparse,
            "compression": options.compression,
            "op": options.op,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
            "process_set": options.process_set,
        }
        self._graphs: dict[Any, Any] = {}

    def __call__(self, grads: Grads, vars: Any = None, use_generic_names: bool = False) -> list[Any]:
        present = tuple(i for i, grad in enumerate(grads) if grad is not None)
        groups = self._options.groups
        variables = list(vars) if vars is not None else None
        if variables is None and isinstance(groups, int):
            variables = list(grads)  # a number of groups needs no names
        plan = plan_groups(groups, [variables[i] for i in present] if variables else [], variable_name)
        reduced = self._run([grads[i] for i in present], present, plan, use_generic_names) if present else []
        return in_places(reduced, present, len(grads))

    def _run(self, grads: list[Any], positions: tuple[int, ...], plan: Plan, generic: bool) -> list[Any]:
        if not _executing_eagerly():
            return self._reduce(grads, positions, plan, generic)
        # The ranks that take part are constants of the graph, and may differ in another session.
        key = (positions, plan, generic, basics.size(), self._process_set.process_set_id)
        if key not in self._graphs:
            self._graphs[key] = _make_subgraph(lambda grads: self._reduce(grads, positions, plan, generic))
        return list(self._graphs[key](grads))

    def _reduce(self, grads: list[Any], positions: tuple[int, ...], plan: Plan, generic: bool) -> list[Any]:
        with tf.name_scope(f"{self._name}_Allreduce"):
            if self._options.sparse_as_dense:
                grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
            if not _env.elastic():
                takes_part = bool(self._process_set.included()) and (self._process_set.size() or 0) > 1
                return self._communicate(grads, positions, plan, generic) if takes_part else list(grads)
            process_set_id = set_id(self._process_set, "DistributedOptimizer")
            with tf.device("/cpu:0"):
                several = tf.logical_and(process_set_included_op(process_set_id) > 0, size_op(process_set_id) > 1)
            reduced = tf.cond(several, lambda: self._communicate(grads, positions, plan, generic), lambda: list(grads))
            return cast(list[Any], reduced)

    def _communicate(self, grads: list[Any], positions: tuple[int, ...], plan: Plan, generic: bool) -> list[Any]:
        # By position: the names of tensors depend on how many models a rank has built before.
        common = {**self._common, "ignore_name_scope": generic}
        if not plan:
            return allreduce_each(grads, [f"grad_{i}" for i in positions], **common)
        result: list[Any] = [None] * len(grads)
        for number, group in enumerate(plan):
            for kind, members in _alike(grads, group).items():
                reduced = grouped_allreduce([grads[i] for i in members], name=f"grad_group_{number}_{kind}", **common)
                for i, grad in zip(members, reduced, strict=True):
                    result[i] = grad
        return result


def _alike(grads: Sequence[Any], group: Sequence[int]) -> dict[str, list[int]]:
    """The members of a group by type: the tensors of an op have one type."""
    kinds: dict[str, list[int]] = {}
    for i in group:
        kind = str(grads[i].dtype.name)
        if isinstance(grads[i], tf.IndexedSlices):
            kind = f"sparse_{kind}_{grads[i].indices.dtype.name}"
        kinds.setdefault(kind, []).append(i)
    return kinds


_made: dict[Any, GradientReduction] = {}
_PARTS = (  # of the options, beside the groups, that a reduction depends on
    "device_dense", "device_sparse", "compression", "sparse_as_dense", "op", "gradient_predivide_factor", "process_set",
)  # fmt: skip


def reduction_of(name: str, options: Options) -> ReduceFn:
    """A function (grads, vars=None, use_generic_names=False) -> list of reduced gradients.

    The same object for the same options, so that many tapes trace one graph.
    """
    groups = options.groups
    if isinstance(groups, list):
        groups = tuple(tuple(map(variable_name, group)) for group in groups)
    key = (name, groups, *(getattr(options, part) for part in _PARTS))
    if key not in _made:
        _made[key] = GradientReduction(name, options)
    return _made[key]


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: type[Compressor],
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: ProcessSet,
) -> ReduceFn:
    """As reduction_of(). `groups`: None, a number, or lists of variables."""
    options = Options(
        compression, None, device_dense, device_sparse, sparse_as_dense,
        gradient_predivide_factor if op == AVERAGE else 1.0, op, groups=groups, process_set=process_set,
    )  # fmt: skip
    return reduction_of(name, options)
