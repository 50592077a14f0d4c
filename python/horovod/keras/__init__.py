"""Horovod for Keras: `import horovod.keras as hvd`, on whatever backend Keras computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras as _keras

from horovod._common import session as _session
from horovod._common.gradient_options import Options
from horovod._common.local_variables import local_layer_variables
from horovod._common.session import *  # noqa: F403
from horovod._common.session import Average
from horovod._keras import private, saving
from horovod._keras.backend import load
from horovod._keras.checks import reduction_of, tolerate_old_compile_argument
from horovod._keras.optimizer import create_distributed_optimizer
from horovod.common.process_sets import ProcessSet, global_process_set

_backend: Any = load(_keras)
private.check(_keras)
tolerate_old_compile_argument()  # before a script looks model.compile up

Compression = _backend.Compression
allgather = _backend.allgather
broadcast = _backend.broadcast
broadcast_global_variables = _backend.broadcast_global_variables
reducescatter = _backend.reducescatter

from horovod.keras import callbacks, elastic  # noqa: E402

__all__ = [
    "Compression",
    "global_process_set",
    "callbacks",
    "elastic",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "broadcast_global_variables",
    "allreduce",
    "allgather",
    "broadcast",
    "reducescatter",
    "load_model",
]
__all__ += _session.__all__


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """Returns an optimizer like `optimizer` that reduces its gradients over all ranks, for model.compile() and fit().

    It is a new one with the same class name and configuration: state of `optimizer` is not taken over. Arguments, the
    same on all ranks:
        optimizer: any Keras optimizer.
        name: of the new optimizer, and of its operations.
        device_dense, device_sparse: on TensorFlow the tf.device of the reductions of tensors and of tf.IndexedSlices.
        compression: Compression.fp16 sends floating-point gradients as float16.
        sparse_as_dense: on TensorFlow, make tf.IndexedSlices dense first.
        gradient_predivide_factor: f: gradients are multiplied by 1/f before, and by f/N after the sum over N ranks.
        op: Average (the default) or Sum.
        groups: a number of groups, or lists of variables, that are reduced together. `num_groups` is its deprecated
            form.

    ValueError: an optimizer that is distributed already or none, or arguments that are wrong or exclude each other.
    fit() raises what fails between ranks: tf.errors.OpError on TensorFlow, else HorovodInternalError.
    """
    return create_distributed_optimizer(
        optimizer,
        Options(
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            num_groups=num_groups,
            groups=groups,
        ),
        _backend,
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a DistributedOptimizer that does not reduce the gradients of `local_layers`: they stay on this rank.

    Arguments and errors as for DistributedOptimizer(), and:
        local_layers: a Keras layer or a collection of them, built or not; ValueError for anything else.
        scale_local_gradients: divide their gradients by the number of ranks.
        backward_passes_per_step: how many gradients are added up before they are reduced; with
            `average_aggregated_gradients` the sum is divided by that number. ValueError on JAX for more than 1.
        process_set: the ranks that take part.
    """
    variables = local_layer_variables(local_layers, "PartialDistributedOptimizer")
    return create_distributed_optimizer(
        optimizer,
        Options(
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
            local_variables=tuple(variables),
        ),
        _backend,
    )


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces `value` over all ranks; returns a tensor of the backend, of the same shape.

    Arguments, the same on all ranks but for the elements:
        value: anything that the backend can convert to a tensor, of one shape and type on all ranks.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls.
        average: True (the default) or False for the sum; None if `op` is given.
        op: Average, Sum, Min, Max or Product.
        prescale_factor, postscale_factor: floats; every input is multiplied by the first, the result by the second.
        compression: Compression.fp16 sends floating-point elements as float16.

    ValueError: this rank's call is wrong, or `op` is given with `average`. HorovodInternalError, on TensorFlow
    tf.errors.OpError: ranks disagree, a rank is lost, or Horovod is not initialised.
    """
    return _backend.allreduce(value, name, reduction_of(op, average), prescale_factor, postscale_factor, compression)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Returns a saved model whose optimizer, with all its state, is a hvd.DistributedOptimizer.

    Arguments:
        filepath: of a .keras or .h5 file, or an open h5py.File.
        custom_optimizers: a list of classes that the file names and Keras does not know.
        custom_objects: a dictionary name -> class for Keras; for the optimizer's name also a function of its
            configuration that returns a DistributedOptimizer.
        compression: as for DistributedOptimizer().
        legacy_opts: accepted for compatibility; the file determines the class of the optimizer.

    ValueError for an optimizer of an unknown class; else errors as for keras.models.load_model().
    """
    del legacy_opts
    options = Options(compression=compression)
    return saving.load_model(_keras, filepath, custom_optimizers, custom_objects, options, _backend)
