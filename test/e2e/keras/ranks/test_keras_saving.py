"""Models are saved and loaded."""

from __future__ import annotations

from keras_saving import *  # noqa: F403  the tests that tf.keras has too
