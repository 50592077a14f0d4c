"""Reduction of a list of gradients, for optimizers and tapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import tensorflow as tf

from horovod import _env
from horovod._common.gradient_options import Plan, in_places, plan_groups
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._collectives import AVERAGE, allreduce_each, grouped_allreduce
from horovod.tensorflow._dense import process_set_included_op, size_op
from horovod.tensorflow._session import basics, set_id
from horovod.tensorflow.compression import Compressor
from horovod.tensorflow.util import _executing_eagerly, _make_subgraph, variable_name

Grads = Sequence[Any]
ReduceFn = Callable[..., list[Any]]


@dataclass(frozen=True)
class _Settings:
    """The arguments of _make_allreduce_grads_fn()."""

    name: str
    device_dense: str
    device_sparse: str
    compression: type[Compressor]
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    groups: Any
    process_set: ProcessSet


class GradientReduction:
    """Reduces lists of gradients with the same settings. None stays None. Caches its graphs for eager mode."""

    def __init__(self, settings: _Settings) -> None:
        factor = float(settings.gradient_predivide_factor) if settings.op == AVERAGE else 1.0
        self._settings = settings
        self._process_set = settings.process_set
        self._common: dict[str, Any] = {
            "device_dense": settings.device_dense,
            "device_sparse": settings.device_sparse,
            "compression": settings.compression,
            "op": settings.op,
            "prescale_factor": 1.0 / factor,
            "postscale_factor": factor,
            "process_set": settings.process_set,
        }
        self._graphs: dict[Any, Any] = {}

    def __call__(self, grads: Grads, vars: Any = None, use_generic_names: bool = False) -> list[Any]:
        present = tuple(i for i, grad in enumerate(grads) if grad is not None)
        groups = self._settings.groups
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
        with tf.name_scope(f"{self._settings.name}_Allreduce"):
            if self._settings.sparse_as_dense:
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


_made: dict[_Settings, GradientReduction] = {}


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
    """A function (grads, vars=None, use_generic_names=False) -> list of reduced gradients.

    The same object for the same arguments, so that many tapes trace one graph. `groups`: None, a number, or lists of
    variables.
    """
    settings = _Settings(
        name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, groups,
        process_set,
    )  # fmt: skip
    key = settings
    if isinstance(groups, list):
        key = replace(settings, groups=tuple(tuple(map(variable_name, group)) for group in groups))
    if key not in _made:
        _made[key] = GradientReduction(settings)
    return _made[key]
