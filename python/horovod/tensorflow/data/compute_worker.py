"""The compute job: horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker compute.json"""

from __future__ import annotations

import argparse

import horovod.tensorflow as hvd
from horovod import _env
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

__all__ = ["compute_worker_fn", "main"]

_LAST_ANSWERS_S = 10.0


def _start_service(
    dispatchers: int, workers: int, dispatcher_side: str, configfile: str, timeout: int
) -> tuple[ComputeService, TfDataServiceConfig]:
    """Starts the compute service and writes its configuration to the file."""
    key = secret.make_secret_key()
    nics = [name for name in (_env.get("HOROVOD_GLOO_IFACE") or "").split(",") if name]
    service = ComputeService(dispatchers, workers, key, nics or None)
    try:
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, service.addresses(), key, timeout)
        config.write(configfile)
    except BaseException:
        service.shutdown()
        raise
    return service, config


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Serves data with all ranks of this job; rank 0 writes `configfile` for the training job.

    `dispatchers`: their number, of which the number of ranks must be a multiple, else ValueError. `dispatcher_side`:
    "compute" or "training", where they run. `timeout`: how long one job waits for the other, in seconds. Returns after
    a client has called shutdown(). Initialises Horovod if it is not initialised. Errors as for compute_worker_fn().
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"the number of processes, {size}, must be a multiple of that of dispatchers, {dispatchers}")
    service, config = None, None
    if rank == 0:
        service, config = _start_service(dispatchers, size // dispatchers, dispatcher_side, configfile, timeout)
    try:
        config = hvd.broadcast_object(config, name="TfDataServiceConfig")
        compute_worker_fn(config)
        if service is not None:
            service.wait_for_clients(size, _LAST_ANSWERS_S)  # the other ranks get their answers from this process
    finally:
        if service is not None:
            service.shutdown()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m horovod.tensorflow.data.compute_worker", description=__doc__)
    parser.add_argument("configfile", help="written by rank 0 for the training job, readable by this user alone")
    parser.add_argument("--dispatchers", type=int, default=1, help="number of dispatchers (default: 1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=("compute", "training"),
        default="compute",
        help="which job runs the dispatchers (default: compute)",
    )
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for the other job (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
