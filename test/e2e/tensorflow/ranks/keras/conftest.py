"""tf.keras, whichever Keras that is, with horovod.tensorflow.keras."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd

pytest.register_assert_rewrite("keras_mistakes")


@pytest.fixture
def face() -> Any:
    from keras_mistakes import Face

    return Face(tf.keras, hvd)
