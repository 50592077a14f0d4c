"""Gluon's Trainer with gradients that are averaged over all ranks."""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.mxnet._averaging import averaging_for
from horovod.mxnet._library import mx
from horovod.mxnet._optimizer import DistributedOptimizer, check_num_groups
from horovod.mxnet.compression import Compression
from horovod.mxnet.mpi_ops import allreduce_, grouped_allreduce_

__all__ = ["DistributedTrainer"]


def _ordered(params: Any) -> Any:
    """The parameters of a list in an order that all ranks have; Trainer itself sorts a dict by its keys."""
    if not isinstance(params, (list, tuple)):
        return params
    return sorted(params, key=lambda parameter: str(getattr(parameter, "name", "")))


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A gluon.Trainer whose step() averages the gradients over all ranks before it updates the parameters.

    Arguments, the same on all ranks:
        params: a ParameterDict or dict of gluon Parameters, or a list of them, which is sorted by name; in one context.
        optimizer, optimizer_params: as for gluon.Trainer. Of a DistributedOptimizer the wrapped one is taken, with a
            warning.
        compression: Compression.fp16 sends gradients of float32 and float64 as float16.
        gradient_predivide_factor: `f`: gradients are multiplied by `1/f` before they are summed, and by `f/N` after.
        prefix: begins the names of the gradients: two trainers that step at once need different ones.
        num_groups: so many groups of gradients, each of one type, are reduced together; 0: each gradient by itself.
        process_set: the ranks that take part; on others gradients stay their own.

    Where no NCCL from 2.10 on is found, `f/N` is a part of the factor that the optimizer applies to gradients, and
    allreduce_grads() leaves the sum times `1/f` in them. ValueError: wrong arguments, or Horovod is not initialised. A
    failure is mxnet.MXNetError where the parameters are waited for.

    >>> trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01 * hvd.size()})
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        wrapper: DistributedOptimizer | None = None
        averaging = averaging_for(gradient_predivide_factor, process_set, "DistributedTrainer")
        check_num_groups(num_groups, "DistributedTrainer")
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer does not take DistributedOptimizer as its optimizer. We have unwrapped it for you.",
                stacklevel=2,
            )
            wrapper, optimizer = optimizer, optimizer._optimizer
        self._compression = compression
        self._averaging = averaging
        self._prefix = prefix or ""
        self._num_groups = num_groups
        self._process_set = process_set
        super().__init__(_ordered(params), optimizer, optimizer_params=optimizer_params, kvstore=None)
        if len(self._contexts or ()) > 1:
            raise ValueError(
                "hvd.DistributedTrainer: the parameters are in the contexts "
                f"{', '.join(map(str, self._contexts))}; each rank must have its own, and only one"
            )
        if wrapper is not None:  # its part of the averaging goes, once: another trainer may take it too
            factor = wrapper._averaging.rescale
            wrapper._averaging = dataclasses.replace(wrapper._averaging, rescale=1.0)
            optimizer.rescale_grad /= factor
            self._scale /= factor
        self._scale *= averaging.rescale

    def _allreduce_grads(self) -> None:
        """What step() and allreduce_grads() call before the update."""
        if not self._averaging.is_needed:
            return
        gradients = [
            (number, parameter.list_grad()[0])
            for number, parameter in enumerate(self._params)
            if parameter.grad_req != "null"
        ]
        if self._num_groups == 0:
            for number, gradient in gradients:
                self._reduce([gradient], f"{self._prefix}{number}", -number)
            return
        for group in split_list(gradients, self._num_groups):
            by_type = defaultdict(list)
            for number, gradient in group:
                by_type[np.dtype(gradient.dtype).name].append((number, gradient))
            for members in by_type.values():
                first, last = members[0][0], members[-1][0]
                name = f"{self._prefix}{first}:{last}"
                self._reduce([gradient for _, gradient in members], name, -first, is_group=True)

    def _reduce(self, gradients: list[Any], name: str, priority: int, is_group: bool = False) -> None:
        how = self._averaging
        compressed = [self._compression.compress(gradient) for gradient in gradients]
        sent = [array for array, _ in compressed]
        reduce: Any = grouped_allreduce_ if is_group else allreduce_
        reduce(
            sent if is_group else sent[0],
            name=name,
            priority=priority,
            op=how.op,
            prescale_factor=how.prescale,
            postscale_factor=how.postscale,
            process_set=self._process_set,
        )
        for gradient, (array, context) in zip(gradients, compressed, strict=True):
            if array is not gradient:
                gradient[:] = self._compression.decompress(array, context)
