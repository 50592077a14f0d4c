"""RayExecutor on one node: ranks train, get what they should, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horovod.ray import RayExecutor, ray_logger
from jobs import run_to_end

pytestmark = pytest.mark.usefixtures("cluster")


def summed(base: int, *, scale: int = 1) -> dict[str, Any]:
    import numpy as np

    from horovod._common import session as hvd
    from horovod._common.arrays import ArrayCollectives

    hvd.init()
    total = np.full(3, float(base * hvd.rank()))
    ArrayCollectives("test").allreduce_([total], ["total"], hvd.Sum)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    return {"total": total.tolist(), "numbers": numbers, "scale": scale, "pid": os.getpid(), "env": dict(os.environ)}


def groups() -> list[str]:
    """The placement groups that there are."""
    return [name for name, group in placement_group_table().items() if group["state"] != "REMOVED"]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_ranks_train_over_an_authenticated_rendezvous(make_executor: Any) -> None:
    environment = dict(os.environ)
    executor = make_executor(num_workers=2)
    executor.start(extra_env_vars={"TRAINING": 7})
    results = executor.run(summed, [5], {"scale": 2})
    assert [result["numbers"] for result in results] == [[0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1]]
    assert [result["total"] for result in results] == [[5.0] * 3] * 2
    assert [result["scale"] for result in results] == [2, 2]
    for rank, result in enumerate(results):
        env = result["env"]
        assert env["TRAINING"] == "7"
        assert env["HOROVOD_HOSTNAME"] == ray.get_runtime_context().get_node_id()
        assert (env["HOROVOD_RANK"], env["HOROVOD_SIZE"]) == (str(rank), "2")
        assert env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
        assert (env["HOROVOD_CONTROLLER"], env["HOROVOD_CPU_OPERATIONS"]) == ("gloo", "gloo")
        secret = Path(env["HOROVOD_SECRET_FILE"])
        assert secret.stat().st_mode & 0o077 == 0
        assert secret.read_text().strip() not in "".join(env.values())
    again = executor.run(summed, [1])
    assert [result["pid"] for result in again] == [result["pid"] for result in results]
    assert dict(os.environ) == environment


def test_tls_is_asked_for_by_a_variable(make_executor: Any) -> None:
    executor = make_executor(num_workers=2)
    executor.start(extra_env_vars={"HOROVOD_TLS": "on"})
    assert [result["total"] for result in executor.run(summed, [2])] == [[2.0] * 3] * 2
    executor.shutdown()
    executor.start(extra_env_vars={"HOROVOD_TLS": 0})
    assert [result["env"]["HOROVOD_TLS"] for result in executor.run(summed, [2])] == ["0", "0"]


def test_shutdown_leaves_nothing(make_executor: Any, eventually: Any) -> None:
    threads = set(threading.enumerate())
    assert groups() == []
    for _ in range(2):  # one executor after another
        executor = make_executor(num_workers=2)
        executor.start()
        results = executor.run(summed, [1])
        env = results[0]["env"]
        assert len(groups()) == 1
        executor.shutdown()
        executor.shutdown()
        assert groups() == []
        assert not Path(env["HOROVOD_SECRET_FILE"]).exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"])))
        eventually(lambda: not any(is_alive(result["pid"]) for result in results))  # noqa: B023
        with pytest.raises(RuntimeError, match=r"run_remote\(\): there are no workers; call start\(\) first"):
            executor.run_remote(summed, [1])
        executor.start()  # the same one again
        assert executor.execute_single(lambda nothing: nothing) is None
        executor.shutdown()
    assert set(threading.enumerate()) == threads


class Trainer:
    def __init__(self, first: int, *, second: int) -> None:
        self.numbers = [first, second]

    def add(self, number: int) -> list[int]:
        self.numbers.append(number)
        return self.numbers


def test_each_rank_has_an_object_of_the_class(make_executor: Any) -> None:
    executor = make_executor(num_workers=2)
    executor.start(executable_cls=Trainer, executable_args=[1], executable_kwargs={"second": 2})
    with pytest.raises(RuntimeError, match="have been started; shutdown"):
        executor.start()
    assert executor.execute_single(lambda trainer: trainer.add(3)) == [1, 2, 3]
    assert executor.execute(lambda trainer: trainer.add(4)) == [[1, 2, 3, 4], [1, 2, 4]]
    assert [result["total"] for result in ray.get(executor.run_remote(summed, [3]))] == [[3.0] * 3] * 2


def test_an_executable_that_cannot_be_made_leaves_nothing(make_executor: Any) -> None:
    with pytest.raises(TypeError, match="second"):
        make_executor(num_workers=2).start(executable_cls=Trainer, executable_args=[1])
    assert groups() == []


def test_an_executor_outlives_its_ray() -> None:
    """In a process of its own, for the other tests need the Ray of this one."""
    program = """
import ray
from horovod.ray import RayExecutor
ray.init("local", num_cpus=1, include_dashboard=False)
executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=1)
executor.start()
ray.shutdown()
executor.shutdown()
assert not ray.is_initialized()
"""
    job = run_to_end([sys.executable, "-c", program])
    assert job.code == 0, job.text


def test_callbacks_hear_what_rank_0_logs(make_executor: Any) -> None:
    def train() -> None:
        for step in range(3):
            ray_logger.log({"step": step, "rank": os.environ["HOROVOD_RANK"]})

    heard: list[Any] = []
    executor = make_executor(num_workers=2)
    executor.start()
    executor.run(train, callbacks=[heard.append, lambda value: heard.append(value["step"])])
    assert heard == [x for step in range(3) for x in ({"step": step, "rank": "0"}, step)]

    def refuse(value: Any) -> None:
        raise KeyError(value["step"])

    with pytest.raises(KeyError, match="0"):
        executor.run(train, callbacks=[refuse])


def test_gpus_of_a_node_are_seen_by_all_its_ranks(make_executor: Any) -> None:
    executor = make_executor(num_workers=2, use_gpu=True)
    executor.start()
    seen = executor.run(lambda: (os.environ["CUDA_VISIBLE_DEVICES"], ray.get_gpu_ids()))
    assert sorted(own for _, (own,) in seen) == [0, 1]
    assert {devices for devices, _ in seen} in ({"0,1"}, {"1,0"})


def test_one_host_with_several_ranks(make_executor: Any) -> None:
    executor = make_executor(num_hosts=1, num_workers_per_host=3)
    executor.start()
    assert [result["numbers"][:4] for result in executor.run(summed, [1])] == [[rank, 3, rank, 3] for rank in range(3)]


@ray.remote(num_cpus=1)
def in_a_group(use_current: bool, workers: int, timeout_s: float = 120) -> Any:
    """In which groups the ranks are, and how many there are, while they run and after that."""
    executor = RayExecutor(
        RayExecutor.create_settings(placement_group_timeout_s=1, timeout_s=timeout_s),
        num_workers=workers,
        use_current_placement_group=use_current,
    )
    executor.start()
    where = executor.run(lambda: ray.util.get_current_placement_group().id.hex())  # noqa: PLW0108
    there = len(groups())
    executor.shutdown()
    return where, there, len(groups())


@pytest.fixture
def group() -> Any:
    group = placement_group([{"CPU": 1}] * 3)
    ray.get(group.ready())
    yield group
    remove_placement_group(group)


def call_in(group: Any, *arguments: Any) -> Any:
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    return ray.get(in_a_group.options(scheduling_strategy=strategy).remote(*arguments))


def test_ranks_go_to_the_callers_placement_group_and_leave_it(group: Any) -> None:
    assert call_in(group, True, 2) == ([group.id.hex()] * 2, 1, 1)


def test_ranks_get_a_group_of_their_own_when_that_is_asked_for(group: Any) -> None:
    where, there, after = call_in(group, False, 1)
    assert where != [group.id.hex()]
    assert (there, after) == (2, 1)


def test_a_callers_group_that_is_too_small_is_named(group: Any) -> None:
    with pytest.raises(TimeoutError, match=r"within 2 s of rank .* 4 x \{CPU: 1\} .* bundles are \{CPU: 1\}"):
        call_in(group, True, 4, 1)  # not 3: while the caller waits, Ray lends its bundle
