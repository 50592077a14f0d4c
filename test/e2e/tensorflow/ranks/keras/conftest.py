"""tf.keras, whichever Keras that is, with horovod.tensorflow.keras."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd

pytest.register_assert_rewrite("keras_face", "keras_callbacks", "keras_mistakes", "keras_saving", "keras_elastic")


@pytest.fixture(scope="session")
def face() -> Any:
    from keras_face import Face

    return Face(tf.keras, hvd)
