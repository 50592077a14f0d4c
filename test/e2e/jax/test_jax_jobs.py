"""Jobs: the example; a rank that ends during a compiled step: the others hear of it, soon, with its name; and Ctrl-C while one waits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jobs import ROOT, SUPPORT, assert_heard_soon, assert_learned, run_to_end

EXAMPLE = str(ROOT / "examples" / "jax_digits.py")
LAST_LINE = "jax: test accuracy _ (wanted 0.95); all {} ranks hold bitwise equal weights"

# Ends while its program runs: JAX has returned before.
ENDS_AT_ONCE = """
import os, jax, jax.numpy as jnp, horovod.jax as hvd
def late(x):
    x = jax.lax.fori_loop(0, 40, lambda _, x: jnp.tanh(x @ x), x)
    return hvd.allreduce(x, name="late")
hvd.init()
jax.jit(late)(jnp.ones((300, 300)))
child = os.fork()
if child == 0:
    hvd.shutdown()  # not the parent's, nor does it wait for the parent's program
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""

SCRIPT = str(Path(__file__).parent / "train_until_lost.py")


def train(horovodrun: Any, how: str) -> Any:
    return horovodrun(2, SCRIPT, how, env={"OMP_NUM_THREADS": "1", **SUPPORT}, survive=how == "kill")


def test_a_lost_rank_ends_the_others_step(horovodrun: Any) -> None:
    def lost() -> Any:
        job = train(horovodrun, "kill")
        assert "[0]<stdout>:raised JaxRuntimeError" in job.out
        return job

    assert_heard_soon(lost, "HorovodInternalError")


def test_ctrl_c_ends_a_step_that_waits_for_another_rank(horovodrun: Any) -> None:
    assert_heard_soon(lambda: train(horovodrun, "stall"), "KeyboardInterrupt")


def test_a_script_that_ends_while_its_program_runs_ends_well(horovodrun: Any) -> None:
    job = horovodrun(2, "-c", ENDS_AT_ONCE, env={"OMP_NUM_THREADS": "1"})
    assert job.code == 0, job.text
    assert "Traceback" not in job.text


def test_digits_are_learned_on_two_ranks(horovodrun: Any) -> None:
    assert_learned(horovodrun(2, EXAMPLE, env={"OMP_NUM_THREADS": "1"}), LAST_LINE.format(2))


def test_digits_are_learned_without_a_launcher() -> None:
    assert_learned(run_to_end([sys.executable, EXAMPLE], env={"OMP_NUM_THREADS": "1"}), LAST_LINE.format(1))
