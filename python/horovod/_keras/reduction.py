"""Reduction of gradients on Keras' backends torch and JAX: the common part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops

from horovod import _env
from horovod._common.gradient_options import Options, Plan, in_places, plan_groups
from horovod._keras.backend import Backend, Reduce
from horovod.common.process_sets import ProcessSet

__all__ = ["Keras3Backend", "Reduction"]


class Reduction:
    """Reduces lists of gradients of one optimizer with the same options. None stays None."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options

    def communicate(self, tensors: list[Any], names: list[str], plan: Plan) -> list[Any]:
        """The tensors reduced over the ranks of the set: each under its name, or by `plan` in groups."""
        raise NotImplementedError

    def __call__(self, grads: Sequence[Any], variables: Any) -> list[Any]:
        present = [i for i, grad in enumerate(grads) if grad is not None]
        if not present or not self._several_ranks():
            return list(grads)
        plan = plan_groups(self.options.groups, [variables[i] for i in present], id)
        # By position: the names of variables depend on how many models a rank has built before.
        names = [f"{self.name}.grad_{i}" for i in present]
        reduced = self.communicate([grads[i] for i in present], names, plan)
        return in_places(reduced, present, len(grads))

    def _several_ranks(self) -> bool:
        """Whether there are other ranks, or may be."""
        process_set = self.options.process_set
        return bool(process_set.included()) and ((process_set.size() or 1) > 1 or _env.elastic())


class Keras3Backend(Backend):
    """The methods that need only Keras 3's own operations."""

    def share_overflow(self, reduce: Reduce, grads: list[Any], own: list[Any], process_set: ProcessSet) -> list[Any]:
        assert isinstance(reduce, Reduction)
        bad = [ops.any(ops.logical_not(ops.isfinite(grad))) for grad in own]
        flag = ops.cast(ops.any(ops.stack(bad)), "float32") if bad else ops.zeros((), "float32")
        (everywhere,) = reduce.communicate([flag], [f"{reduce.name}.overflow"], ())
        return [
            None if grad is None else ops.where(everywhere > 0, ops.full_like(grad, float("nan")), grad)
            for grad in grads
        ]
