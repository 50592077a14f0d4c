"""What every compute job has, whoever starts its ranks: its service, the check of its numbers, its command line."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from horovod import _env
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig


def workers_of_each_dispatcher(ranks: int, dispatchers: int) -> int:
    """The workers of a dispatcher. ValueError unless the ranks are a multiple of the dispatchers."""
    if dispatchers < 1 or ranks % dispatchers:
        raise ValueError(f"the number of processes, {ranks}, must be a multiple of that of dispatchers, {dispatchers}")
    return ranks // dispatchers


@contextlib.contextmanager
def compute_service(
    dispatchers: int, workers_per_dispatcher: int, dispatcher_side: str, timeout: int
) -> Iterator[tuple[ComputeService, TfDataServiceConfig]]:
    """A context with a compute service of this process, and the configuration with a key of its own for both jobs.

    Arguments as for TfDataServiceConfig. The service listens on the interfaces of HOROVOD_GLOO_IFACE, or on all.
    ValueError for wrong arguments and for interfaces that do not exist.
    """
    key = secret.make_secret_key()
    nics = [name for name in (_env.get("HOROVOD_GLOO_IFACE") or "").split(",") if name]
    service = ComputeService(dispatchers, workers_per_dispatcher, key, nics or None)
    try:
        yield (
            service,
            TfDataServiceConfig(
                dispatchers, workers_per_dispatcher, dispatcher_side, service.addresses(), key, timeout
            ),
        )
    finally:
        service.shutdown()


def _from_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def argument_parser(module: str, description: str | None, written_by: str) -> argparse.ArgumentParser:
    """The command line of `python -m module`; `written_by` says who writes the configuration file."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("configfile", help=f"written by {written_by} for the training job, readable by this user alone")
    parser.add_argument("--dispatchers", type=_from_one, default=1, help="number of dispatchers (default: 1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=("compute", "training"),
        default="compute",
        help="which job runs the dispatchers (default: compute)",
    )
    parser.add_argument("--timeout", type=_from_one, default=60, help="seconds to wait for the other job (default: 60)")
    return parser
