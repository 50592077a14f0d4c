"""The lines with which scripts give each process a GPU do no harm where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jobs import run_to_end

SCRIPTS = Path(__file__).parent / "scripts"


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
