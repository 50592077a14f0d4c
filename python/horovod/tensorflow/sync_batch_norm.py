"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow._dense import _allreduce
from horovod.tensorflow._private import moments_method
from horovod.tensorflow._session import basics

__all__ = ["SyncBatchNormalization"]

_METHOD = moments_method()


def _moments_of_all(mean: Any, variance: Any) -> tuple[Any, Any]:
    """Mean and variance over all ranks, from those of each rank. Requires: batches of one size."""
    size = basics.size()
    if size == 1:
        return mean, variance
    stacked = tf.stack([mean, variance + tf.math.square(mean)])
    stacked = _allreduce(stacked, op=basics.Sum) / tf.cast(size, stacked.dtype)
    mean, mean_of_square = tf.unstack(stacked)
    return mean, mean_of_square - tf.math.square(mean)


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """tf.keras.layers.BatchNormalization with the moments of all ranks' batches, which must have one size.

    Other arguments than `fused` are those of Keras' layer. ValueError for `fused` True or None, because a fused kernel
    does not return its moments; RuntimeError if the layer of this TensorFlow computes moments in an unknown way.
    Errors of a step as for allreduce().
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError(f"SyncBatchNormalization does not support fused={fused}")
        if _METHOD is None:
            raise RuntimeError(
                f"SyncBatchNormalization: the BatchNormalization of TensorFlow {tf.__version__} computes the moments "
                "of a batch in an unknown way, so each rank would normalise by itself; use another version"
            )
        if _METHOD == "_calculate_mean_and_var":
            kwargs["fused"] = False  # Keras 2 has the argument
        super().__init__(**kwargs)

    def _calculate_mean_and_var(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Keras 2."""
        return _moments_of_all(*super()._calculate_mean_and_var(*args, **kwargs))

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Keras 3, and Keras 2's way to _calculate_mean_and_var."""
        mean, variance = super()._moments(inputs, *args, **kwargs)
        return _moments_of_all(mean, variance) if _METHOD == "_moments" else (mean, variance)
