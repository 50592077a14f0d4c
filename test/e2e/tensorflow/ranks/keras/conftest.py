"""tf.keras, whichever Keras that is, with horovod.tensorflow.keras."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd
from tf_world import KERAS_3

pytest.register_assert_rewrite("keras_face", "keras_callbacks", "keras_mistakes", "keras_saving", "keras_elastic")


@pytest.fixture(scope="session")
def face() -> Any:
    from keras_face import Face

    return Face(tf.keras, hvd)


if not KERAS_3:

    @pytest.fixture(autouse=True)
    def young_iterators() -> Iterator[None]:
        """fit() of Keras 2 leaves iterators of tf.data in reference cycles. To free one may take TensorFlow 2.16 as long as
        it has lived, up to a minute each (docs/api/tensorflow.md), so they are freed at once."""
        gc.freeze()  # what is there already need not be looked through
        yield
        gc.collect()
