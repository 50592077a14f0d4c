"""DistributedGradientTape: a tape that reduces its gradients over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._common.gradient_options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._collectives import AVERAGE
from horovod.tensorflow._local import LocalVariables, local_layer_variables
from horovod.tensorflow._reduction import ReduceFn, reduction_of
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.util import mark_reduced, no_autograph

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]

Pairs = list[tuple[Any, Any]]


class _DistributedGradientTape:
    """A mixin for the class of the wrapped tape, whose record it takes over."""

    _hvd_reduce: ReduceFn
    _hvd_local: LocalVariables

    def register_local_source(self, source: Any) -> None:
        """Makes `source`, a variable or a layer, local: its gradient stays on this rank."""
        self._hvd_local.register(source)

    def _local_gradients(self, target: Any, sources: Any, output_gradients: Any, **options: Any) -> list[Any]:
        return list(super().gradient(target, sources, output_gradients, **options))  # type: ignore[misc]

    @no_autograph
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the reduced gradients of a list of sources; for another structure of sources, one like it.

        With `use_generic_names` they are matched without the name scopes in which ranks call this. Other arguments as
        of tf.GradientTape.gradient().
        """
        flat = tf.nest.flatten(sources)
        grads = self._local_gradients(target, flat, output_gradients, **options)
        reduced = self._hvd_local.reduce(self._hvd_reduce, grads, flat, use_generic_names=use_generic_names)
        mark_reduced(reduced)
        is_flat = isinstance(sources, (list, tuple)) and len(sources) == len(flat)
        return reduced if is_flat else tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[Pairs, Pairs]:
        """Returns two lists of (variable, gradient): the local gradients, and the reduced ones."""
        sources = tf.nest.flatten(sources)
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, grads, strict=True))
        local = [pair for pair in pairs if pair[0] in self._hvd_local]
        return local, [pair for pair in pairs if pair[0] not in self._hvd_local]


def DistributedGradientTape(  # noqa: N802
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape with the record of `gradtape` that reduces the gradients it computes over all ranks of the set.

    Its gradient(target, sources) returns the list of reduced gradients, matched between ranks by position; None stays
    None. Arguments, the same on all ranks:
        gradtape: a tf.GradientTape that has recorded.
        device_dense, device_sparse: the tf.device of the reductions of tensors and of tf.IndexedSlices.
        compression: Compression.fp16 sends floating-point gradients as float16.
        sparse_as_dense: make tf.IndexedSlices dense first.
        op: Average (the default), Sum or Adasum.
        gradient_predivide_factor: f: gradients are multiplied by 1/f before, and by f/N after the sum over N ranks.
        groups: a number of groups, or lists of variables, that are reduced together. `num_groups` is its deprecated
            form.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local sources, which stay on this rank, by N.

    ValueError: groups of another kind, or `gradient_predivide_factor` with another op than Average. Errors of
    gradient() as for allreduce().
    """
    options = Options(
        compression,
        None,
        device_dense,
        device_sparse,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
    )
    base = type(gradtape)
    made: Any = type(base.__name__, (_DistributedGradientTape, base), {})
    tape = made.__new__(made)
    tape.__dict__.update(gradtape.__dict__)
    tape._hvd_reduce = reduction_of("DistributedGradientTape", options)
    tape._hvd_local = LocalVariables(process_set, scale_local_gradients)
    return tape


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a DistributedGradientTape that does not reduce the gradients of `local_layers`: they stay on this rank.

    `local_layers`: a Keras layer or a collection of them; ValueError for anything else. Other arguments and errors as
    for DistributedGradientTape().
    """
    variables = local_layer_variables(local_layers, "PartialDistributedGradientTape")
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables:
        tape.register_local_source(variable)
    return tape
