"""Sends tf.data pipelines from a training job to the workers of a compute job. See docs/design/data-service.md."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._common.calls import run_without_tensor
from horovod._common.native import core
from horovod.runner.common.service.compute_service import ComputeClient

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_POLL_S = 1.0
_HEARTBEAT_MS = 1000
_JOB = "job"
_PROTOCOL = "grpc://"


@dataclass(frozen=True)
class TfDataServiceConfig:
    """The configuration that both jobs share.

    `dispatchers`: their number; `workers_per_dispatcher`: the workers of each. `dispatcher_side`: "compute" or
    "training", where the dispatchers run. `addresses`: interface -> [(IPv4 address, port)] of the compute service;
    `key`: its secret. `timeout`: how long one side waits for the other, in seconds. ValueError for other sides and for
    counts below 1.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: dict[str, list[tuple[str, int]]]
    key: bytes = field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        for name in ("dispatchers", "workers_per_dispatcher"):
            if getattr(self, name) < 1:
                raise ValueError(f"TfDataServiceConfig: {name} must be at least 1, got {getattr(self, name)}")
        if self.dispatcher_side not in ("training", "compute"):
            raise ValueError(f"dispatcher_side must be 'training' or 'compute', got {self.dispatcher_side!r}")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Returns a client of the compute service. `verbose`: 2 logs its address. ConnectionError without an answer."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> dict[str, Any]:
        """Returns a dictionary for JSON, with the key as a string of hexadecimal digits."""
        return {**asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Returns the configuration of `config`, which to_dict() has made. KeyError or ValueError for others."""
        addresses = {
            interface: [(str(host), int(port)) for host, port in pairs]
            for interface, pairs in config["addresses"].items()
        }
        return TfDataServiceConfig(
            dispatchers=config["dispatchers"],
            workers_per_dispatcher=config["workers_per_dispatcher"],
            dispatcher_side=config["dispatcher_side"],
            addresses=addresses,
            key=bytes.fromhex(config["key"]),
            timeout=config.get("timeout", 60),
        )

    def write(self, filename: str) -> None:
        """Writes the file `filename` atomically, readable by this user only, because it contains the key."""
        path = Path(filename)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Returns the configuration in the file `filename`, which write() has written.

        `wait_for_file_creation`: wait for the file, without a deadline. ValueError for another file, and for one that
        other users may have written or read, because its key gives access to the service.
        """
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(_POLL_S)
        text = _read_private(filename)
        try:
            return TfDataServiceConfig.from_dict(json.loads(text))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{filename} is no configuration of a compute service: {error!r}") from error


def _read_private(filename: str) -> str:
    """The text of a file that only this user may read and write, as for HOROVOD_SECRET_FILE. ValueError for others."""
    try:  # O_NONBLOCK: opening a pipe must not wait for its writer
        descriptor = os.open(filename, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{filename} is a symbolic link, expected a regular file") from error
        raise
    with os.fdopen(descriptor) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{filename} is not a regular file")
        if status.st_uid != os.geteuid():
            raise ValueError(f"{filename} belongs to uid {status.st_uid}, expected the own uid {os.geteuid()}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise ValueError(f"{filename} has mode {mode:04o}, expected no permission for others (chmod 600)")
        return file.read()


def _start_dispatcher(client: ComputeClient, number: int) -> Any:
    """Starts a dispatcher, and registers it with an address that other hosts can use."""
    server = tf.data.experimental.service.DispatchServer(tf.data.experimental.service.DispatcherConfig(port=0))
    try:
        port = server.target.rsplit(":", 1)[1]
        client.register_dispatcher(number, f"{_PROTOCOL}{client.local_host}:{port}")
    except BaseException:
        server._stop()
        raise
    return server


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """A context with the address of a dispatcher, for tf.data.experimental.service.distribute(service=...).

    `compute_config`: of the compute job. `rank`: of this training process. One dispatcher serves all ranks; of several,
    rank r uses number r. The context runs the dispatcher if that is on the training side. IndexError if there are fewer
    dispatchers than ranks; TimeoutException if dispatcher or workers do not register in time; ConnectionError.
    """
    client = compute_config.compute_client(verbose=2)
    several = compute_config.dispatchers > 1
    number = rank if several else 0
    server = None
    if compute_config.dispatcher_side == "training" and (several or rank == 0):
        server = _start_dispatcher(client, number)
    try:
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address
    finally:
        if server is not None:
            server._stop()


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Returns `dataset`, computed by the workers of the compute job. Also a method of tf.data.Dataset.

    Arguments:
        compute_config: of the compute job, whose dispatchers are on the compute side.
        rank, size: of this training process, and how many there are.
        processing_mode: as for tf.data.experimental.service.distribute().
        reuse_dataset: the ranks share one pass over the data, and each gets a part; else each has a pass of its own.
        round_robin: with `reuse_dataset`, ranks get their elements in turn; needs an infinite dataset and `size`.

    RuntimeError if the dispatchers are on the training side: use tf_data_service() there. ValueError for `round_robin`
    without `size`. Errors as for tf_data_service().
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "send_to_data_service: the dispatchers run on the training side and have to outlive the dataset; use "
            "`with tf_data_service(compute_config, rank) as address:` and tf.data.experimental.service.distribute()"
        )
    consumers: dict[str, Any] = {}
    if reuse_dataset and round_robin:
        if size is None:
            raise ValueError("send_to_data_service: round_robin=True needs `size`, the number of training processes")
        # With several dispatchers, each has one rank as its only consumer.
        alone = compute_config.dispatchers > 1
        consumers = {"consumer_index": 0 if alone else rank, "num_consumers": 1 if alone else size}
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                service=address, processing_mode=processing_mode, job_name=_JOB if reuse_dataset else None, **consumers
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """One process of the compute job: serves data until a client requests the shutdown of the compute service.

    All ranks call it. `compute_config`: of the job. Initialises Horovod if it is not initialised. TimeoutException if
    the dispatcher does not register in time; ConnectionError if the service does not answer; HorovodInternalError if
    another rank is lost.
    """
    hvd.init()
    rank = hvd.rank()
    client = compute_config.compute_client(verbose=2)
    number = rank // compute_config.workers_per_dispatcher
    is_first = rank % compute_config.workers_per_dispatcher == 0
    with contextlib.ExitStack() as servers:
        if compute_config.dispatcher_side == "compute" and is_first:
            servers.callback(_start_dispatcher(client, number)._stop)
        dispatcher = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        worker = tf.data.experimental.service.WorkerServer(
            tf.data.experimental.service.WorkerConfig(
                dispatcher_address=dispatcher.removeprefix(_PROTOCOL),
                worker_address=f"{client.local_host}:%port%",
                heartbeat_interval_ms=_HEARTBEAT_MS,
                dispatcher_timeout_ms=compute_config.timeout * 1000,
            )
        )
        servers.callback(worker._stop)
        client.register_worker_for_dispatcher(number, rank)
        client.wait_for_shutdown()
        # A worker that is still starting waits for its dispatcher, also for one that has gone.
        run_without_tensor(core.OP_BARRIER, "compute_worker_fn")
