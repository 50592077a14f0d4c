"""Two jobs: compute workers of the tf.data service, and a training job that reads through them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs import Job, run_to_end

pytestmark = pytest.mark.takes(42)

SCRIPTS = Path(__file__).parent / "scripts"
TRAINING = str(SCRIPTS / "data_service_training.py")
WORKER = ("-m", "horovod.tensorflow.data.compute_worker")


@contextmanager
def compute_job(horovodrun_path: str, *arguments: str) -> Iterator[list[Job]]:
    """Compute workers on two ranks, which must end by themselves; what they left behind is in the list then."""
    jobs: list[Job] = []
    command = [horovodrun_path, "-np", "2", sys.executable, *WORKER, *arguments]
    runner = threading.Thread(target=lambda: jobs.append(run_to_end(command)))
    runner.start()
    yield jobs
    runner.join()
    assert jobs, "the compute job did not end"
    assert jobs[0].code == 0, jobs[0].text


def read(horovodrun: Any, config: str, *ways: str) -> None:
    job = horovodrun(2, TRAINING, config, *ways)
    assert job.code == 0, job.text
    for way in ways:
        assert f"read by 2 ranks: {way}" in job.out


def test_ranks_read_through_one_dispatcher(horovodrun: Any, horovodrun_path: str, tmp_path: Path) -> None:
    config = str(tmp_path / "compute.json")
    with compute_job(horovodrun_path, config):
        read(horovodrun, config, "own", "shared")
        assert (tmp_path / "compute.json").stat().st_mode & 0o777 == 0o600
        assert [one.name for one in tmp_path.iterdir()] == ["compute.json"]


def test_a_dispatcher_stays_until_all_ranks_have_started(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, str(SCRIPTS / "data_service_end.py"), str(tmp_path))
    assert job.code == 0, job.text


@pytest.mark.slow
def test_ranks_read_in_turn(horovodrun: Any, horovodrun_path: str, tmp_path: Path) -> None:
    config = str(tmp_path / "compute.json")
    with compute_job(horovodrun_path, config):
        read(horovodrun, config, "turns")


@pytest.mark.slow
@pytest.mark.parametrize("ways", [("own", "shared"), ("turns",)])
def test_ranks_have_dispatchers_of_their_own(
    horovodrun: Any, horovodrun_path: str, tmp_path: Path, ways: tuple[str, ...]
) -> None:
    config = str(tmp_path / "compute.json")
    with compute_job(horovodrun_path, config, "--dispatchers", "2"):
        read(horovodrun, config, *ways)


@pytest.mark.parametrize("dispatchers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_dispatchers_run_on_the_training_side(
    horovodrun: Any, horovodrun_path: str, tmp_path: Path, dispatchers: str
) -> None:
    config = str(tmp_path / "compute.json")
    arguments = (config, "--dispatchers", dispatchers, "--dispatcher-side", "training")
    with compute_job(horovodrun_path, *arguments):
        read(horovodrun, config, "training")


ONE_PROCESS = """
import os, sys, threading
import pytest
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService, TimeoutException
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service
from horovod.tensorflow.data.compute_worker import main

# Workers that do not come are missed.
service = ComputeService(1, 1, b"k" * 32, nics=["lo"])
config = TfDataServiceConfig(1, 1, "training", service.addresses(), b"k" * 32, timeout=1)
config.write(sys.argv[1])
assert TfDataServiceConfig.read(sys.argv[1]) == config
assert TfDataServiceConfig.from_dict(config.to_dict()) == config
with pytest.raises(TimeoutException, match="1 workers of dispatcher 0"), tf_data_service(config, 0):
    raise SystemExit("nobody was missed")
service.shutdown()
with pytest.raises(ConnectionError), tf_data_service(config, 0):
    raise SystemExit("no service was missed")

# Bad input.
with pytest.raises(ValueError, match="dispatcher_side"):
    TfDataServiceConfig(1, 1, "both", {}, b"k")
with pytest.raises(ValueError, match="multiple"):
    main(2, "compute", sys.argv[2], 30)
with open(sys.argv[2], "w") as file:
    file.write("{}")
for mode in (0o640, 0o604, 0o620):
    os.chmod(sys.argv[2], mode)
    with pytest.raises(ValueError, match=f"has mode {mode:04o}, expected no permission for others"):
        TfDataServiceConfig.read(sys.argv[2])
os.chmod(sys.argv[2], 0o600)
with pytest.raises(ValueError, match="no configuration"):
    TfDataServiceConfig.read(sys.argv[2])
os.symlink(sys.argv[1], sys.argv[2] + ".link")
with pytest.raises(ValueError, match="symbolic link"):
    TfDataServiceConfig.read(sys.argv[2] + ".link")
os.mkfifo(sys.argv[2] + ".pipe", 0o600)
with pytest.raises(ValueError, match="not a regular file"):
    TfDataServiceConfig.read(sys.argv[2] + ".pipe")

# main() runs in a thread and leaves Horovod alone.
hvd.init()
tf.io.gfile.remove(sys.argv[1])
thread = threading.Thread(target=main, args=(1, "compute", sys.argv[1], 30))
thread.start()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
rows = [int(row) for row in tf.data.Dataset.range(10).send_to_data_service(config, 0, 1)]
assert sorted(rows) == list(range(10)), rows
config.compute_client().shutdown()
thread.join(60)
assert not thread.is_alive()
assert hvd.is_initialized()
assert hvd.size_op().numpy() == 1
"""


def test_one_process_is_both_jobs(tmp_path: Path) -> None:
    """Also what goes wrong: absent workers, an absent service, bad configurations."""
    job = run_to_end([sys.executable, "-c", ONE_PROCESS, str(tmp_path / "compute.json"), str(tmp_path / "bad.json")])
    assert job.code == 0, job.text


@pytest.mark.slow
def test_the_number_of_ranks_is_a_multiple_of_the_dispatchers(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, *WORKER, str(tmp_path / "compute.json"), "--dispatchers", "3")
    assert job.code != 0
    assert "ValueError" in job.text
    assert "multiple" in job.text


@pytest.mark.slow
def test_help_names_all_flags() -> None:
    job = run_to_end([sys.executable, *WORKER, "--help"])
    assert job.code == 0, job.text
    for flag in ("configfile", "--dispatchers", "--dispatcher-side", "--timeout"):
        assert flag in job.out
