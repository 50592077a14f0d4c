"""Jobs: the example; a rank that ends during a step: the others hear of it, soon, with its name; and Ctrl-C while one waits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import ROOT, SUPPORT, assert_heard_soon, assert_learned, run_to_end

EXAMPLE = str(ROOT / "examples" / "mxnet_digits.py")
SCRIPT = str(Path(__file__).parent / "train_until_lost.py")
ENV = {"OMP_NUM_THREADS": "1"}

# Calls that nobody waits for, at the end of a script; and a child that ends before them.
ENDS_AT_ONCE = """
import os, mxnet as mx, horovod.mxnet as hvd
hvd.init()
x = mx.nd.ones((300, 300)) / 300
child = os.fork()
if child == 0:
    hvd.shutdown()  # not the parent's
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
for step in range(20):
    x = hvd.allreduce(mx.nd.dot(x, x), name=f"x{step}")
print("rank", hvd.rank(), "is done")
"""

# A call that the other rank never makes, and an exception.
ENDS_IN_FINALLY = """
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
hvd.allreduce(mx.nd.ones(1), name="both").wait_to_read()
try:
    made = hvd.allreduce(mx.nd.ones(1), name=f"of rank {hvd.rank()}")
    if hvd.rank() == 1:
        raise ValueError("no more of this")
    made.wait_to_read()
finally:
    hvd.shutdown()
"""

# The engine that runs each operation at once, in the thread that pushes it.
AT_ONCE = """
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
print("sum", hvd.allreduce(mx.nd.ones(2), op=hvd.Sum).asnumpy().tolist(), hvd.allgather(mx.nd.ones(1)).shape)
try:
    hvd.allreduce(mx.nd.ones(hvd.rank() + 1), name="disagreed")
except mx.MXNetError as error:
    print("refused", "Mismatched tensor shapes" in str(error))
"""

# Calls that the other rank never makes: while the session ends, and at the end of the script.
ENDS_ALONE = """
import sys, mxnet as mx, horovod.mxnet as hvd
hvd._session._STALL_S = 0.5
hvd.init()
made = hvd.allreduce(mx.nd.ones(1), name=f"of rank {hvd.rank()}")
hvd.shutdown()
try:
    made.wait_to_read()
except mx.MXNetError as error:
    print("failed", "shut down" in str(error))
hvd.init()
hvd.allreduce(mx.nd.ones(1), name="both").wait_to_read()
if hvd.rank() == 1:
    hvd.allreduce(mx.nd.ones(1), name="alone")
    sys.exit(3)
hvd.allgather(mx.nd.ones(1), name="of rank 0")
"""


def train(horovodrun: Any, how: str, where: str) -> Any:
    return horovodrun(2, SCRIPT, how, where, env={**ENV, **SUPPORT}, survive=how != "stall")


@pytest.mark.parametrize("where", ["wait", "call"])
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_lost_rank_ends_the_others_step(horovodrun: Any, how: str, where: str) -> None:
    assert_heard_soon(lambda: train(horovodrun, how, where), "MXNetError")


@pytest.mark.parametrize("where", ["wait", "call"])
def test_ctrl_c_ends_a_wait_for_another_rank(horovodrun: Any, where: str) -> None:
    assert_heard_soon(lambda: train(horovodrun, "stall", where), "KeyboardInterrupt")


def test_a_script_that_ends_while_its_calls_run_ends_well(horovodrun: Any) -> None:
    job = horovodrun(2, "-c", ENDS_AT_ONCE, env=ENV)
    assert job.code == 0, job.text
    assert job.out.count("is done") == 2, job.text
    assert "Traceback" not in job.text
    assert "Error" not in job.text


def test_a_session_that_ends_after_an_exception_waits_for_nothing(horovodrun: Any) -> None:
    job = horovodrun(2, "-c", ENDS_IN_FINALLY, env=ENV, survive=True)
    assert job.code == 1, job.text
    assert "ValueError: no more of this" in job.err, job.text
    assert "MXNetError: Horovod: " in job.err, job.text


def test_the_engine_that_runs_everything_at_once(horovodrun: Any) -> None:
    job = horovodrun(2, "-c", AT_ONCE, env={**ENV, "MXNET_ENGINE_TYPE": "NaiveEngine"})
    assert job.code == 0, job.text
    assert job.out.count("sum [2.0, 2.0] (2,)") == 2, job.text
    assert job.out.count("refused True") == 2, job.text


def test_a_session_ends_though_others_do_not_make_its_calls(horovodrun: Any) -> None:
    job = horovodrun(2, "-c", ENDS_ALONE, env=ENV)
    assert job.code == 3, job.text
    assert job.out.count("failed True") == 2, job.text
    assert "calls that other ranks have not made for 0.5 s" in job.err, job.text


def test_a_numpy_that_mxnet_does_not_know_is_named(tmp_path: Path) -> None:
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.no_such_name\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import horovod.mxnet"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(r"ImportError: horovod\.mxnet: MXNet cannot be imported.*numpy < 1\.24", done.stderr), done.stderr


def test_a_library_without_the_engines_functions_is_named() -> None:
    code = (
        "import ctypes, mxnet\n"
        "mxnet.base._LIB = ctypes.CDLL(None)\n"
        "import horovod.mxnet\n"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ImportError: horovod.mxnet: cannot use MXNet" in done.stderr, done.stderr
    assert "lacks MX" in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_digits_are_learned(horovodrun: Any, ranks: int) -> None:
    job = horovodrun(2, EXAMPLE, env=ENV) if ranks == 2 else run_to_end([sys.executable, EXAMPLE], env=ENV)
    assert_learned(job, f"mxnet: test accuracy _ (wanted 0.95); all {ranks} ranks hold bitwise equal weights")
