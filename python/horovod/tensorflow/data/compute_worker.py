"""The compute job: horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker compute.json"""

from __future__ import annotations

import contextlib

import horovod.tensorflow as hvd
from horovod.tensorflow.data._compute_job import argument_parser, compute_service, workers_of_each_dispatcher
from horovod.tensorflow.data.compute_service import compute_worker_fn

__all__ = ["compute_worker_fn", "main"]

_LAST_ANSWERS_S = 10.0


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Serves data with all ranks of this job; rank 0 writes `configfile` for the training job.

    `dispatchers`: their number, of which the number of ranks must be a multiple, else ValueError. `dispatcher_side`:
    "compute" or "training", where they run. `timeout`: how long one job waits for the other, in seconds. Returns after
    a client has called shutdown(). Initialises Horovod if it is not initialised. Errors as for compute_worker_fn().
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    workers = workers_of_each_dispatcher(size, dispatchers)
    service, config = None, None
    with contextlib.ExitStack() as stack:
        if rank == 0:
            service, config = stack.enter_context(compute_service(dispatchers, workers, dispatcher_side, timeout))
            config.write(configfile)
        config = hvd.broadcast_object(config, name="TfDataServiceConfig")
        compute_worker_fn(config)
        if service is not None:
            service.wait_for_clients(size, _LAST_ANSWERS_S)  # the other ranks get their answers from this process


if __name__ == "__main__":
    given = argument_parser("horovod.tensorflow.data.compute_worker", __doc__, "rank 0").parse_args()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
