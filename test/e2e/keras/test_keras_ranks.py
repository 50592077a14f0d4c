"""Runs the tests of ranks/ on each of Keras' backends, on two ranks; in `make test-slow` on one and three too."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import run_rank_tests

pytestmark = pytest.mark.takes(127)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_ranks_agree(horovodrun: Any, backend: str, ranks: int) -> None:
    settings = {"KERAS_BACKEND": backend, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiling is most of JAX's time
    run_rank_tests(horovodrun, __file__, ranks, settings, deadline_s=900.0)
