"""How processes with TensorFlow end, and what the other ranks see: docs/design/tensorflow.md, "Interrupts and exits"."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from jobs import DEADLINE_S, assert_soon, run_to_end

pytestmark = pytest.mark.takes(75)

SCRIPTS = Path(__file__).parent / "scripts"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
SOON_S = 2.0


def lose_last_rank(
    horovodrun: Any, ranks: int, mode: str, how: str, *codes: int
) -> tuple[list[tuple[float, str]], str]:
    """What each survivor said: how long after the other's end, and with which words. And all output."""
    job = horovodrun(ranks, str(SCRIPTS / "lost_rank.py"), mode, how, env=QUIET, survive=True)
    assert job.code in codes, job.text
    left = re.search(r"leaves ([\d.]+)", job.out)
    assert left, job.text
    noticed = [(float(at) - float(left[1]), said) for at, said in re.findall(r"noticed ([\d.]+) (.*)", job.out)]
    assert len(noticed) == ranks - 1, job.text
    return noticed, job.text


@pytest.mark.parametrize(
    ("mode", "ranks"),
    [pytest.param("eager", 3, marks=pytest.mark.slow), ("function", 2), pytest.param("session", 2, marks=pytest.mark.slow), ("fit", 2)],
)
def test_a_killed_rank_fails_every_survivors_step(horovodrun: Any, mode: str, ranks: int) -> None:
    def seconds() -> float:
        noticed, text = lose_last_rank(horovodrun, ranks, mode, "kill", 128 + signal.SIGKILL)
        assert all(f"rank {ranks - 1}" in said for _, said in noticed), text
        return max(after for after, _ in noticed)

    assert_soon(seconds, 1.0)


def test_an_exception_between_steps_is_named(horovodrun: Any) -> None:
    (noticed,), text = lose_last_rank(horovodrun, 2, "eager", "raise", 1)
    assert "rank 1 is lost: uncaught exception KeyError: 'oops'" in noticed[1], text


def test_an_exception_inside_a_graph_is_named(horovodrun: Any) -> None:
    """Rank 1's py_function raises while rank 0 waits in a collective of the same function."""

    def seconds() -> float:
        ((after, said),), text = lose_last_rank(horovodrun, 2, "function", "op", 1)
        assert "rank 1 is lost: uncaught exception" in said, text
        assert "KeyError: 'oops'" in said, text
        return after

    assert_soon(seconds, 10.0)  # rank 1 prints its traceback first


def test_a_rank_that_leaves_ends_the_others_steps(horovodrun: Any) -> None:
    (noticed,), text = lose_last_rank(horovodrun, 2, "function", "exit", 3)
    assert "rank 1" in noticed[1], text


def test_ctrl_c_in_fit_ends_the_job(horovodrun: Any) -> None:
    """The interrupted rank does not catch it; the others learn why at once."""
    # 1 where the launcher had to end it: printing and leaving may take longer than the second that it gets.
    (noticed,), text = lose_last_rank(horovodrun, 2, "fit", "interrupt", 128 + signal.SIGINT, 1)
    assert "rank 1 is lost: uncaught exception KeyboardInterrupt" in noticed[1], text


WAITS = "eager gather objects function loop gradient session monitored_session fit".split()


def test_ctrl_c_interrupts_every_wait(horovodrun: Any, tmp_path: Path) -> None:
    def seconds() -> float:
        folder = tmp_path / "interrupted"
        job = horovodrun(2, str(SCRIPTS / "interrupts.py"), str(folder), env=QUIET)
        assert job.code == 0, job.text
        folder.rmdir()
        compiled = re.findall(r"session of rank (\d): ended", job.out)  # from TensorFlow 2.18 on
        took = re.findall(r"(\w+): interrupted after ([\d.]+) s", job.out)
        assert [wait for wait, _ in took] == [*WAITS, *(["compiled"] if compiled else [])], job.text
        assert len(compiled) in (0, 2), job.text
        assert "session of" not in job.out or compiled, job.text
        assert "handler of the program: called 1 times, the operation went on" in job.out, job.text
        assert job.out.count("done") == 2, job.text
        return max(float(after) for _, after in took)

    assert_soon(seconds, SOON_S)


def test_ctrl_c_at_the_launcher_ends_fit(horovodrun_path: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import tensorflow as tf, horovod.tensorflow.keras as hvd
            hvd.init()
            model = tf.keras.Sequential([tf.keras.layers.Input([10]), tf.keras.layers.Dense(10)])
            model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001)), "mse")
            endless = tf.data.Dataset.from_tensors((tf.ones([4, 10]), tf.ones([4, 10]))).repeat()
            say = tf.keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: batch == 10 and print("trains", flush=True))
            try:
                model.fit(endless, steps_per_epoch=1000000, verbose=0, callbacks=[say])
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                raise
            """
        )
    )

    def seconds() -> float:
        with subprocess.Popen(
            [horovodrun_path, "-np", "2", sys.executable, str(script)], stdout=subprocess.PIPE, text=True
        ) as job:
            assert job.stdout is not None
            try:
                for _ in range(2):
                    assert "trains" in job.stdout.readline()
                begin = time.monotonic()
                job.send_signal(signal.SIGINT)
                for _ in range(2):
                    assert "interrupted" in job.stdout.readline()
                took = time.monotonic() - begin
                # How long TensorFlow takes to leave is its own affair.
                assert job.wait(timeout=DEADLINE_S) == 128 + signal.SIGINT
            finally:
                job.kill()
        return took

    assert_soon(seconds, SOON_S)


ENDS = {
    "end of the script": ("", 0),
    "shutdown": ("hvd.shutdown()", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise KeyError('oops')", 1),
    "os._exit": ("sys.stdout.flush(); os._exit(4)", 4),
    "pending in a thread": (
        "if hvd.rank() == 0: threading.Thread(target=lambda: hvd.allgather(tf.ones([2])), daemon=True).start()\n"
        "time.sleep(0.5)",
        0,
    ),
}


# The others end the interpreter as they do with torch, in test_processes.py.
OF_TENSORFLOW = ("end of the script", "exception", "pending in a thread")


@pytest.mark.parametrize("end", [end if end in OF_TENSORFLOW else pytest.param(end, marks=pytest.mark.slow) for end in ENDS])
def test_two_ranks_end_cleanly(end: str, horovodrun: Any, tmp_path: Path) -> None:
    """Each way out begins when both have their result: a rank that fails takes the other's from it."""
    body, code = ENDS[end]
    script, met = tmp_path / "script.py", tmp_path / "met"
    met.mkdir()
    script.write_text(
        "import os, sys, threading, time, tensorflow as tf, horovod.tensorflow as hvd\nhvd.init()\n"
        "hvd.allreduce(tf.ones([3]))\nprint('done', flush=True)\n"
        f"os.mkdir(f'{met}/{{hvd.rank()}}')\nwhile len(os.listdir({str(met)!r})) < 2: time.sleep(0.01)\n{body}\n"
    )
    job = horovodrun(2, str(script), env=QUIET)
    assert job.code == code, job.text
    assert job.out.count("done") == 2, job.text
    for sign in ("terminate called", "Segmentation", "Fatal Python"):
        assert sign not in job.err, job.text


def test_who_asked_for_signals_before_still_gets_them() -> None:
    """One process: a wakeup fd and a handler of the program's own; then a forked child, which is left alone."""
    program = textwrap.dedent(
        """
        import os, signal, socket, threading
        import tensorflow as tf, horovod.tensorflow as hvd
        mine, writer = socket.socketpair()
        writer.setblocking(False)
        mine.settimeout(10)
        signal.set_wakeup_fd(writer.fileno())
        threads = threading.active_count()
        hvd.init()
        try:
            signal.raise_signal(signal.SIGINT)
            print("not raised")
        except KeyboardInterrupt:
            print("raised", mine.recv(1)[0] == signal.SIGINT)
        child = os.fork()
        if child == 0:
            assert signal.set_wakeup_fd(-1) == -1
            signal.raise_signal(signal.SIGINT)
        _, status = os.waitpid(child, 0)
        print("child", os.waitstatus_to_exitcode(status))
        print(hvd.allreduce(tf.ones([1])).numpy())
        hvd.shutdown()
        print("given back", signal.set_wakeup_fd(-1) == writer.fileno(), threading.active_count() == threads)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hvd.init()
        print("ignored", signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
        hvd.shutdown()
        """
    )
    job = run_to_end([sys.executable, "-c", program], env=QUIET)
    assert job.code == 0, job.text
    said = [line for line in job.out.splitlines() if line]
    assert said == ["raised True", "child -2", "[1.]", "given back True True", "ignored True"], job.text


# A compiled collective that cannot end does not hang: the job ends, and says why.

COMPILED = str(SCRIPTS / "compiled_failures.py")


@pytest.fixture
def compiles() -> None:
    pytest.importorskip("tensorflow", "2.18", reason="XLA compiles our collectives from TensorFlow 2.18 on")


def heard(job: Any) -> dict[int, str]:
    return {int(rank): text for rank, text in re.findall(r"\[(\d)\]<stdout>:heard (.*)", job.out)}


@pytest.mark.usefixtures("compiles")
def test_a_rank_that_raises_ends_the_others_wait(horovodrun: Any) -> None:
    job = horovodrun(2, COMPILED, "raise", survive=True)
    assert job.code != 0, job.text
    assert "no error" not in job.out
    assert re.search(r"UnknownError .*rank 1.*rank 1 has enough", heard(job)[0]), job.text


@pytest.mark.usefixtures("compiles")
def test_another_order_of_tracing_is_reported_and_ends(horovodrun: Any) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    job = horovodrun(2, COMPILED, "order", env=env)
    assert job.code != 0, job.text
    assert "no error" not in job.out
    for text in heard(job).values():
        assert re.search(r'UnknownError .*did not submit "(first|second)"', text), job.text
    assert heard(job), job.text
