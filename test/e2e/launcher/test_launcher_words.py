"""What the launcher says, and what it sets for ranks unless the user did."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from launcher_job import StartJob

PYTHON = sys.executable
SHOW = "import os; print(*(os.environ.get(n) for n in ('OMP_NUM_THREADS', 'PYTHONFAULTHANDLER')))"


def test_a_python_file_runs_under_python_and_a_name_without_one_gets_a_hint(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('ran with', sys.argv[1:])\n")
    job = start_job("-n", "1", "train.py", "--epochs", "3")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["ran with ['--epochs', '3']"]
    assert "horovodrun: train.py is not an executable program; running it as `" in job.err
    job = start_job("-np", "1", "trian.py")
    assert job.wait() == 127
    assert "command not found: trian.py (python trian.py?)" in job.err


def test_ranks_share_the_cores_and_show_where_python_crashed(start_job: StartJob) -> None:
    unset = {"OMP_NUM_THREADS": None, "PYTHONFAULTHANDLER": None}
    job = start_job("-np", "2", PYTHON, "-c", SHOW, env=unset)
    assert job.wait() == 0
    cores = int(job.err.split("their share of ")[1].split()[0])
    assert 1 <= cores <= len(os.sched_getaffinity(0))  # fewer where a control group has a quota
    assert job.lines("[0]<stdout>:") == job.lines("[1]<stdout>:") == [f"{max(1, cores // 2)} 1"]
    assert job.err.count("OMP_NUM_THREADS") == 2  # what it is, and how to choose another number: one line
    assert len(job.err.splitlines()) == 1
    job = start_job("-np", "3", PYTHON, "-c", SHOW, env=unset, on_cores={min(os.sched_getaffinity(0))})
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["1 1"]
    assert "each of its 3 ranks, their share of 1 core;" in job.err
    job = start_job("-np", "2", PYTHON, "-c", SHOW, env={"OMP_NUM_THREADS": "7", "PYTHONFAULTHANDLER": ""})
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["7 "]
    assert job.err == ""


def test_the_last_lines_of_a_failed_rank_are_repeated_only_when_they_are_out_of_sight(start_job: StartJob) -> None:
    script = "[ $HOROVOD_RANK = 1 ] && { echo the reason >&2; kill -KILL $$; }; sleep 0.3; seq 60; exit 0"
    job = start_job("-np", "2", "sh", "-c", script)
    assert job.wait() == 137
    assert "its last lines on stderr:\n    the reason\n" in job.err
    assert "(when memory runs out, the kernel kills with SIGKILL" in job.err
