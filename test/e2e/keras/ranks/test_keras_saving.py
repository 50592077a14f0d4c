"""Models are saved and loaded. On TensorFlow tf.keras shows it, which there is the same Keras with the same optimizers."""

from __future__ import annotations

import pytest

from keras_saving import *  # noqa: F403  the tests that tf.keras has too

pytestmark = pytest.mark.usefixtures("not_on_tensorflow")
