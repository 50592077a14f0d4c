"""Elastic jobs on a cluster whose nodes come and go. The ranks' functions train without a framework."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from horovod.ray import ElasticRayExecutor, RayExecutor, _rsh, ray_logger
from horovod.ray._relay import AgentPlace, AgentRelay
from horovod.ray.elastic import RayHostDiscovery
from horovod.ray.elastic_v2 import RayHostDiscovery as RayHostDiscovery2
from jobs import ROOT

# worker_support has a broadcast without a framework; ranks look for modules where this process does.
sys.path.append(str(ROOT / "test" / "e2e" / "elastic"))

pytestmark = pytest.mark.takes(45)

BATCHES = 5
WAIT_S = 120


@pytest.fixture(scope="module")
def nodes(make_nodes: Any) -> Any:
    """Two nodes with a processor each."""
    return make_nodes(2, num_cpus=1)


@pytest.fixture(autouse=True)
def free(nodes: Any, eventually: Any) -> None:
    """Ray says late that what the test before has used is free."""
    eventually(lambda: ray.available_resources().get("CPU") == 2)


def train(at_batch: Callable[[Any], None], is_done: Callable[[Any], bool]) -> Any:
    """A loop that logs the batch and the number of ranks; the result is who this was at the end."""
    from worker_support import broadcast_object

    from horovod._common.session import init, rank, size
    from horovod.common.elastic import ObjectState, restart_session, run_fn

    def loop(state: ObjectState) -> None:
        while not is_done(state):
            state.batch += 1
            at_batch(state)
            ray_logger.log({"batch": state.batch, "size": size()})
            state.commit()

    init()
    state = ObjectState(broadcast_object, rank, batch=0)
    run_fn(loop, restart_session)(state)
    return rank(), size(), os.environ["HOROVOD_HOSTNAME"], os.getpid()


def two_are_done(state: Any) -> bool:
    from horovod._common.session import size

    return state.batch >= BATCHES and size() == 2


def run_and_change(executor: Any, arguments: Any, is_time: Callable[[Any], bool], change: Callable[[], Any]) -> Any:
    """The results of train(*arguments), and what was logged. `change` is called, by the thread that may add nodes, once
    something is logged for which `is_time`."""
    heard: list[Any] = []
    came = threading.Event()

    def hear(value: Any) -> None:
        heard.append(value["size"])
        if is_time(value):
            came.set()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.run, train, arguments, callbacks=[hear])
        running.add_done_callback(lambda _: came.set())
        assert came.wait(WAIT_S)
        change()
        return running.result(WAIT_S), heard


def settings() -> Any:
    return RayExecutor.create_settings(timeout_s=60)


class Counter:
    """An executable: what each process has made of the class."""

    def __init__(self, goal: int) -> None:
        self.goal = goal

    def train(self) -> Any:
        return train(lambda state: None, lambda state: state.batch >= self.goal)


def test_a_job_runs_on_all_nodes_and_leaves_nothing(nodes: Any, eventually: Any, tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    environment = dict(os.environ)
    executor = RayExecutor(settings(), min_workers=2)
    executor.start(executable_cls=Counter, executable_args=[3], extra_env_vars={"FOLDER": tmp_path})
    results = executor.execute(lambda counter: (*counter.train(), os.environ["FOLDER"]))
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]
    assert {result[2] for result in results} == {node.node_id for node in nodes}
    assert {result[4] for result in results} == {str(tmp_path)}
    for call in (lambda: executor.run_remote(settings), lambda: executor.execute_single(lambda _: 1)):
        with pytest.raises(NotImplementedError, match="is for static jobs"):
            call()
    executor.shutdown()
    eventually(lambda: not any(Path(f"/proc/{result[3]}").exists() for result in results))
    assert set(threading.enumerate()) == threads
    assert dict(os.environ) == environment


def alive() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def test_a_killed_rank_is_done_without_and_a_new_node_takes_part(nodes: Any, make_nodes: Any, eventually: Any) -> None:
    def at_batch(state: Any) -> None:
        from horovod._common.session import rank, size

        if state.batch == 2 and size() == 2 and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    added: list[Any] = []
    executor = RayExecutor(settings(), min_workers=1, max_workers=2)
    executor.start()
    try:
        results, sizes = run_and_change(
            executor,
            [at_batch, two_are_done],
            lambda value: value["size"] == 1,
            lambda: added.extend(make_nodes(1, num_cpus=1)),
        )
    finally:
        for node in added:
            make_nodes.remove(node, allow_graceful=True)
    eventually(lambda: added[0].node_id not in alive())
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]
    assert added[0].node_id in {result[2] for result in results}
    assert set(sizes) == {1, 2}


def test_a_lost_node_is_done_without(nodes: Any, make_nodes: Any, eventually: Any) -> None:
    (extra,) = make_nodes(1, num_cpus=1)
    executor = RayExecutor(settings(), min_workers=2)
    executor.start()
    results, _ = run_and_change(
        executor,
        [lambda state: None, two_are_done],
        lambda value: value["size"] == 3,
        lambda: make_nodes.remove(extra, allow_graceful=False),
    )
    eventually(lambda: extra.node_id not in alive())
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]
    assert {result[2] for result in results} == {node.node_id for node in nodes}


def test_a_failure_everywhere_is_raised_with_its_cause(nodes: Any) -> None:
    def work() -> None:
        raise LookupError("no data here")

    with pytest.warns(DeprecationWarning, match="min_workers"):
        executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2), env_vars={"ONE": 1})
    executor.start()
    with pytest.raises(RuntimeError, match=r"raised LookupError: no data here\nProcess name: \S+\[\d\]\nExit code: 1") as caught:
        executor.run(work)
    assert isinstance(caught.value.__cause__, LookupError)
    assert executor.run(lambda: os.environ["ONE"]) == ["1", "1"]


def test_too_few_nodes_are_named_in_time(nodes: Any) -> None:
    executor = RayExecutor(settings(), min_workers=3, elastic_timeout=1)
    executor.start()
    with pytest.raises(TimeoutError, match=r"3 ranks of CPU: 1 each .* for 1 s the cluster had room for 2"):
        executor.run(lambda: None)


@pytest.fixture
def taken(nodes: Any) -> Any:
    """The node whose processor somebody else uses."""

    @ray.remote(num_cpus=1)
    class Other:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    other = Other.remote()
    yield ray.get(other.node.remote())
    ray.kill(other)


def test_who_waits_for_room_ends_with_the_job(taken: str, eventually: Any) -> None:
    start = time.monotonic()
    with AgentRelay(lambda host: AgentPlace(host, {"CPU": 1}), seconds=600) as relay:
        command = [sys.executable, "-I", "-S", _rsh.__file__, relay.name, taken, "horovodrun", "--agent"]
        caller = subprocess.Popen(command)
        eventually(lambda: "hvd-agent-caller" in {thread.name for thread in threading.enumerate()})
        assert caller.poll() is None
    assert caller.wait(WAIT_S) != 0
    assert time.monotonic() - start < WAIT_S


def test_a_node_without_room_is_named(taken: str) -> None:
    with AgentRelay(lambda host: AgentPlace(host, {"CPU": 1}), seconds=0.5) as relay:
        command = [sys.executable, "-I", "-S", _rsh.__file__, relay.name, taken, "horovodrun", "--agent"]
        run = subprocess.run(command, timeout=WAIT_S, stderr=subprocess.PIPE, text=True)
    assert run.returncode != 0
    assert f"no room within 0.5 s for CPU: 1 on node {taken}" in run.stderr


def test_a_busy_node_is_done_without(taken: str, eventually: Any) -> None:
    executor = RayExecutor(settings(), min_workers=1)
    executor.start()
    (node,) = executor.run(lambda: os.environ["HOROVOD_HOSTNAME"])
    assert node != taken
    eventually(lambda: ray.available_resources().get("CPU") == 1)
    executor = RayExecutor(settings(), min_workers=2, elastic_timeout=1)
    executor.start()
    with pytest.raises(TimeoutError, match="room for 1, beside what else runs; alone for 2"):
        executor.run(lambda: None)


def test_nodes_are_hosts_by_their_address(nodes: Any) -> None:
    (address,) = {node["NodeManagerAddress"] for node in ray.nodes()}
    assert RayHostDiscovery().find_available_hosts_and_slots() == {address: 1}
    assert RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots() == {}
    assert RayHostDiscovery2(use_gpu=True, cpus_per_worker=1, gpus_per_worker=1).find_available_hosts_and_slots() == {}
