"""Collectives on anything that tf.constant takes, and loading models."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import Options, distribute_in_place, saving
from horovod.tensorflow import functions
from horovod.tensorflow._collectives import AVERAGE
from horovod.tensorflow._collectives import allreduce as tf_allreduce
from horovod.tensorflow._collectives import reducescatter as tf_reducescatter
from horovod.tensorflow._dense import allgather as tf_allgather
from horovod.tensorflow._dense import broadcast as tf_broadcast
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.util import _executing_eagerly


def evaluate(tensor: Any) -> Any:
    """The tensor in eager mode, its value in a graph."""
    if _executing_eagerly() or tf.inside_function():
        return tensor
    return functions.session_or_default(None, "hvd").run(tensor)


def allreduce(
    value: Any,
    name: str | None,
    average: bool | None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    return evaluate(
        tf_allreduce(
            tf.constant(value, name=name),
            average=average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """The rows of all ranks, in rank order."""
    return evaluate(tf_allgather(tf.constant(value, name=name)))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank `root_rank`."""
    return evaluate(tf_broadcast(tf.constant(value, name=name), root_rank))


def reducescatter(value: Any, name: str | None = None, op: int = AVERAGE) -> Any:
    """This rank's share of the rows of the reduced value."""
    return evaluate(tf_reducescatter(tf.constant(value, name=name), op=op))


def broadcast_global_variables(root_rank: int) -> Any:
    """Overwrites all global variables of the graph with those of rank `root_rank`."""
    return evaluate(functions.broadcast_global_variables(root_rank))


def load_model(keras: Any, filepath: Any, custom_optimizers: Any, custom_objects: Any, options: Options) -> Any:
    """Loads a model and makes the optimizer that came with it a distributed one, which keeps its variables."""
    model = saving.load(keras, filepath, custom_optimizers, custom_objects)
    if getattr(model, "optimizer", None) is not None:
        distribute_in_place(model.optimizer, options)
    return model
