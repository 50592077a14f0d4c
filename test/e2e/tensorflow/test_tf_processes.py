"""What a process with TensorFlow holds, copies and leaves alone: GPUs, memory, and the graphs that were there before init()."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import run_to_end

pytestmark = pytest.mark.takes(60)

SCRIPTS = Path(__file__).parent / "scripts"
STAGES = ["before init", "while initialised", "after shutdown", "again"]
MORE = re.compile(r"(function|eager): (-?\d+) KiB, (-?\d+) threads, (-?\d+) descriptors more")


# Graphs


@pytest.mark.parametrize("ranks", [1, 2])
def test_graphs_built_before_init(ranks: int, horovodrun: Any) -> None:
    """Running one without a session says what to do."""
    script = str(SCRIPTS / "without_session.py")
    job = run_to_end([sys.executable, script]) if ranks == 1 else horovodrun(ranks, script)
    assert job.code == 0, job.text
    assert all(job.out.count(stage) == ranks for stage in STAGES), job.text


# GPUs: the lines with which scripts give each process one do no harm where there is none


def test_pinning_without_a_gpu(horovodrun: Any) -> None:
    job = horovodrun(2, str(SCRIPTS / "pinning.py"))
    assert job.code == 0, job.text
    assert job.out.count("pinned") == 2


def test_the_import_and_the_session_leave_the_devices_alone() -> None:
    program = (
        "import tensorflow as tf, horovod.tensorflow.keras, horovod.tensorflow as hvd\n"
        "from tensorflow.python.eager import context\n"
        "hvd.init(); hvd.rank(); hvd.add_process_set\n"
        "print(context.context()._context_handle is None)\n"
        "hvd.allreduce(tf.ones([1])); print(context.context()._context_handle is None)\n"
    )
    job = run_to_end([sys.executable, "-c", program])
    assert job.out.split() == ["True", "False"], job.text


# Memory: nothing grows with the number of steps, and dense tensors are not copied beyond the fusion buffer


def check(horovodrun: Any, steps: int, kib: int, deadline_s: float) -> None:
    job = horovodrun(2, str(SCRIPTS / "growth.py"), str(steps), env={"TF_CPP_MIN_LOG_LEVEL": "2"}, deadline_s=deadline_s)
    assert job.code == 0, job.text
    measured = MORE.findall(job.out)
    assert len(measured) == 4, job.text
    for what, memory, threads, descriptors in measured:
        assert int(memory) <= kib, f"{what} steps: {job.text}"
        assert int(threads) <= 0, job.text
        assert int(descriptors) <= 0, job.text


def test_a_thousand_steps_hold_nothing(horovodrun: Any) -> None:
    check(horovodrun, 1000, kib=512, deadline_s=240)


@pytest.mark.slow
def test_ten_thousand_steps_hold_nothing(horovodrun: Any) -> None:
    """A leak of 140 bytes a step would show."""
    check(horovodrun, 10000, kib=1024, deadline_s=900)


def test_dense_tensors_are_not_copied_on_their_way(horovodrun: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C compiler to build the counter of copies")
    library = tmp_path / "count_copies.so"
    source = str(SCRIPTS / "count_copies.c")
    flags = ["-shared", "-fPIC", "-O1", "-fno-builtin", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, "-x", "c", source, "-o", str(library), "-ldl"], check=True)
    job = horovodrun(2, str(SCRIPTS / "copies.py"), env={"LD_PRELOAD": str(library)})
    assert job.code == 0, job.text
    assert job.out.count("counted") == 2, job.text
