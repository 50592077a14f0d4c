"""A rank of a compute job for test_tf_data_service.py that ends while rank 1 is still starting its worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeClient
from horovod.tensorflow.data import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from jobs import eventually

FOLDER = Path(sys.argv[1])
CONFIG, TOLD, STARTED = FOLDER / "compute.json", FOLDER / "told", FOLDER / "started"
service = tf.data.experimental.service
WorkerServer, DispatchServer = service.WorkerServer, service.DispatchServer
wait_for_shutdown = ComputeClient.wait_for_shutdown


def late_worker(config: Any) -> Any:
    if hvd.rank() == 0:
        return WorkerServer(config)
    TfDataServiceConfig.read(str(CONFIG)).compute_client().shutdown()
    eventually(TOLD.exists, "rank 0 hears of the end")
    worker = WorkerServer(config)
    STARTED.touch()
    return worker


class Dispatcher(DispatchServer):  # type: ignore[misc]
    def _stop(self) -> None:
        assert STARTED.exists(), "rank 1 has not started, and waits for this dispatcher"
        super()._stop()


def told(client: ComputeClient) -> None:
    wait_for_shutdown(client)
    TOLD.touch()


with (
    mock.patch.object(service, "WorkerServer", late_worker),
    mock.patch.object(service, "DispatchServer", Dispatcher),
    mock.patch.object(ComputeClient, "wait_for_shutdown", told),
):
    compute_worker.main(1, "compute", str(CONFIG))
