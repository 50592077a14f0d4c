"""Collected only where Ray is installed. One Ray for the tests of a module; what they start in it is ended by them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs import DEADLINE_S

_spec = importlib.util.find_spec("ray")
# A folder called ray on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]

WAIT_S = DEADLINE_S


def by_value(module: str) -> None:
    """Functions of this module travel by value: workers cannot import it."""
    import cloudpickle
    import ray

    for pickle in (cloudpickle, ray.cloudpickle):
        pickle.register_pickle_by_value(sys.modules[module])


@pytest.fixture(scope="session", autouse=True)
def patient_ray() -> Iterator[None]:
    """Ray asks whether a node that it has started is there, and gives it up after 30 s: too soon on a busy machine."""
    services: Any = importlib.import_module("ray._private.services")
    ask = services.get_node
    not_yet = (RuntimeError, importlib.import_module("ray.exceptions").RaySystemError)

    def get_node(*arguments: Any) -> Any:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                return ask(*arguments)
            except not_yet:  # it is not listed, or nobody listens who would know
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "get_node", get_node)
        yield


@pytest.fixture(scope="module")
def make_nodes(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Adds nodes to a Ray that has one, without processors: make_nodes(2, num_cpus=1) returns them."""
    import ray
    from ray.cluster_utils import Cluster

    by_value(request.module.__name__)
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False)

    def make(number: int, **arguments: Any) -> list[Any]:
        return [cluster.add_node(**arguments) for _ in range(number)]

    make.remove = cluster.remove_node  # type: ignore[attr-defined]
    yield make
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """A Ray of one node with four processors and two GPUs that nobody looks for."""
    import ray

    by_value(request.module.__name__)
    ray.init("local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def make_executor() -> Iterator[Callable[..., Any]]:
    """RayExecutor(), with settings of its own unless they are given; shut down after the test."""
    from horovod.ray import RayExecutor

    made = []

    def make(settings: Any = None, **arguments: Any) -> Any:
        made.append(RayExecutor(settings or RayExecutor.create_settings(timeout_s=120), **arguments))
        return made[-1]

    yield make
    for executor in made:
        executor.shutdown()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Asks until it is so, for what Ray does after it has answered."""

    def ask(is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end, "it has not come about"
            time.sleep(0.05)

    return ask
