"""An executor in a program that is no part of the cluster: Ray Client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from horovod.runner.util.network import find_port
from jobs import run_to_end

pytestmark = pytest.mark.usefixtures("cluster")

PROGRAM = str(Path(__file__).parent / "through_client.py")


def test_the_drivers_part_runs_in_the_cluster() -> None:
    from ray.util.client.server.server import serve

    server, port = find_port(lambda address: serve("127.0.0.1", address[1]))
    try:
        job = run_to_end([sys.executable, PROGRAM, f"ray://127.0.0.1:{port}"])
    finally:
        server.stop(0)
    assert job.code == 0, job.text
    assert job.out.rstrip().endswith("all was well"), job.text
