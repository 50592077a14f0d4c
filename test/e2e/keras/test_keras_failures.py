"""A rank that ends during fit(): the others' fit() raises Horovod's error, soon, with its name; also from compiled steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobs import assert_heard_soon, assert_soon

pytestmark = pytest.mark.takes(54)

SOON_S = 2.0
SCRIPT = Path(__file__).parent / "fit_until_lost.py"


def run(horovodrun: Any, backend: str, how: str, model: str) -> Any:
    env = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    return horovodrun(2, str(SCRIPT), how, model, env=env, survive=how != "stall")


@pytest.mark.parametrize(
    ("backend", "model", "how"),
    [
        ("torch", "dense", "kill"),
        ("jax", "convolutions", "kill"),
        ("jax", "dense", "interrupt"),
        pytest.param("torch", "dense", "interrupt", marks=pytest.mark.slow),
        pytest.param("jax", "dense", "kill", marks=pytest.mark.slow),
        pytest.param("jax", "convolutions", "interrupt", marks=pytest.mark.slow),
    ],
)
def test_fit_raises_on_the_ranks_that_are_left(horovodrun: Any, backend: str, model: str, how: str) -> None:
    def seconds() -> float:
        job = run(horovodrun, backend, how, model)
        assert job.code != 0, job.text
        ended = float(re.search(r"\[1\]<stdout>:ends ([\d.]+)", job.out)[1])
        survivor = re.search(r"\[0\]<stdout>:heard ([\d.]+) (\w+) (.*)", job.out)
        assert survivor, job.text
        assert survivor[2] == "HorovodInternalError", job.text
        assert "rank 1" in survivor[3]
        own = re.search(r"\[1\]<stdout>:heard ([\d.]+) (\w+)", job.out)
        assert (own is not None) == (how == "interrupt")
        assert own is None or own[2] == "KeyboardInterrupt"
        return max(float(heard[1]) for heard in (survivor, own) if heard) - ended

    assert_soon(seconds, SOON_S)


@pytest.mark.parametrize(
    ("backend", "model"),
    [("torch", "dense"), pytest.param("jax", "dense", marks=pytest.mark.slow), ("jax", "convolutions")],
)
def test_ctrl_c_ends_a_fit_that_waits_for_another_rank(horovodrun: Any, backend: str, model: str) -> None:
    assert_heard_soon(lambda: run(horovodrun, backend, "stall", model), "KeyboardInterrupt")
