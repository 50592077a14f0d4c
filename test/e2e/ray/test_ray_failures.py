"""What goes wrong on a rank or in the cluster, and that the caller hears why, soon."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table

from horovod.ray import adapter, ray_logger, strategy
from horovod.ray.coordinator import Coordinator

pytestmark = pytest.mark.usefixtures("cluster")

SOON_S = 30


def reduced() -> float:
    import numpy as np

    from horovod._common import session
    from horovod._common.arrays import ArrayCollectives

    session.init()
    total = np.ones(1)
    ArrayCollectives("test").allreduce_([total], ["total"], session.Sum)
    return float(total[0])


@pytest.fixture
def executor(make_executor: Any) -> Any:
    made = make_executor(num_workers=2)
    made.start()
    return made


def test_what_a_rank_raises_is_raised_while_others_wait_for_it(executor: Any) -> None:
    def train() -> None:
        from horovod._common import session as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise FileNotFoundError(2, "no such data", "train.csv")
        reduced()

    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match=r"no such data: 'train\.csv'") as caught:
        executor.run(train)
    assert time.monotonic() - start < SOON_S
    if sys.version_info >= (3, 11):
        assert any(note.startswith("raised by rank 1 on ") for note in caught.value.__notes__)
    assert executor.run(reduced) == [2.0, 2.0]


def test_the_other_ranks_say_who_raised(executor: Any) -> None:
    def train() -> str:
        from horovod._common import session as hvd
        from horovod.common.exceptions import HorovodInternalError

        hvd.init()
        if hvd.rank() == 0:
            raise ArithmeticError("no loss")
        try:
            reduced()
        except HorovodInternalError as error:
            return str(error)
        return "nothing"

    first, second = executor.run_remote(train)
    assert "rank 0 is lost: uncaught exception ArithmeticError: no loss" in ray.get(second)
    with pytest.raises(ArithmeticError):
        ray.get(first)


def test_a_killed_rank_is_named_with_its_node(executor: Any) -> None:
    def train() -> None:
        from horovod._common import session as hvd

        hvd.init()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        reduced()

    node = ray.get_runtime_context().get_node_id()
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=rf"^rank 1 on \S+ \(node {node}\) has died: ") as caught:
        executor.run(train)
    assert time.monotonic() - start < SOON_S
    assert isinstance(caught.value.__cause__, ray.exceptions.RayActorError)
    for call in (executor.execute, executor.run_remote, executor.execute_single):
        with pytest.raises(RuntimeError, match=r"^rank 1 on .* has died: .* start\(\) begins anew"):
            call(lambda *_: None)
    executor.shutdown()
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())
    executor.start()
    assert executor.run(reduced) == [2.0, 2.0]


def test_a_rank_that_never_ends_does_not_hold_up_a_failure(executor: Any) -> None:
    def train() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise ValueError("wrong")
        threading.Event().wait()

    start = time.monotonic()
    with pytest.raises(ValueError, match="wrong"):
        executor.run(train)
    with pytest.raises(RuntimeError, match=r"still runs on others.*shutdown\(\) ends them"):
        executor.run(reduced)
    executor.shutdown()
    assert time.monotonic() - start < SOON_S


def test_a_call_waits_for_ranks_that_end_soon_after_a_failure(
    executor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"

    def train() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise ValueError("wrong")
        while not go.exists():
            time.sleep(0.01)

    def wait(*arguments: Any, **named: Any) -> Any:
        if named["timeout"] == adapter._WAIT_FOR_OTHERS_S:
            go.touch()
        return ray_wait(*arguments, **named)

    with pytest.raises(ValueError, match="wrong"):
        executor.run(train)
    ray_wait = ray.wait
    monkeypatch.setattr(ray, "wait", wait)
    assert executor.run(reduced) == [2.0, 2.0]
    assert go.exists(), "rank 0 was not waited for"


class Unreadable(Exception):
    """It pickles, and cannot be made again from that."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_a_rank_whose_words_cannot_be_read_has_not_died(executor: Any) -> None:
    def raising() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise Unreadable(1, 2)

    with pytest.raises(RuntimeError, match=r"^what rank 1 on .* has raised cannot be read here: [\s\S]*Unreadable: 1 and 2"):
        executor.run(raising)
    unreadable = r"^what rank [01] on .* has returned cannot be read here: .*missing 1 required positional argument: 'two'"
    with pytest.raises(RuntimeError, match=unreadable):
        executor.run(lambda: Unreadable(1, 2))
    assert executor.run(reduced) == [2.0, 2.0]


def test_sys_exit_ends_the_call_and_not_the_rank(executor: Any) -> None:
    assert executor.run(lambda: sys.exit(0)) == [None, None]
    with pytest.raises(RuntimeError, match=r"sys\.exit\(3\)"):
        executor.run(lambda: sys.exit(3))
    assert executor.run(reduced) == [2.0, 2.0]


def test_no_place_in_time_names_what_was_asked_for_and_what_there_is(make_executor: Any) -> None:
    settings = make_executor(num_workers=1).create_settings(placement_group_timeout_s=1)
    for arguments, asked in (
        ({"num_workers": 9, "cpus_per_worker": 2}, r"9 x \{CPU: 2\} \(PACK\)"),
        ({"num_hosts": 2}, r"2 x \{CPU: 1\} \(STRICT_SPREAD\)"),
        ({"num_workers": 3, "use_gpu": True}, r"3 x \{CPU: 1, GPU: 1\} \(PACK\)"),
    ):
        with pytest.raises(TimeoutError, match=rf"within 1 s for {asked}: the cluster has 1 node \(\S+ \{{CPU: 4, GPU: 2\}}\)"):
            make_executor(settings, **arguments).start()
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())


def test_contradicting_numbers_are_refused_at_the_start(make_executor: Any) -> None:
    for kind in (AssertionError, ValueError):
        with pytest.raises(kind, match="num_workers=2 and num_hosts=3"):
            make_executor(num_workers=2, num_hosts=3).start()
    with pytest.raises(ValueError, match="neither num_workers"):
        make_executor().start()


class _EndsAsItIsSent:
    """A function whose call finds that the executor was shut down since it began."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def __reduce__(self) -> Any:
        self._executor.shutdown()
        return time.sleep, (600,)  # there, where it is ended


def test_a_shutdown_while_a_call_begins_ends_that_call(executor: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^rank [01] on .* has died: "):
        executor.execute(_EndsAsItIsSent(executor))


def test_a_shutdown_while_the_workers_start_leaves_nothing(
    make_executor: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    secrets: list[Path] = []
    establish = Coordinator.establish_rendezvous

    def establish_late(self: Coordinator, tls: bool = False) -> dict[str, str]:
        ending.start()
        eventually(lambda: job._strategy is None)
        variables = establish(self, tls)
        secrets.append(Path(variables["HOROVOD_SECRET_FILE"]))
        return variables

    monkeypatch.setattr(Coordinator, "establish_rendezvous", establish_late)
    executor = make_executor(num_workers=2)
    job = adapter.StaticAdapter(executor.settings, executor._params)
    ending = threading.Thread(target=job.shutdown)
    with pytest.raises(RuntimeError, match=r"^rank [01] on .* has died: |shutdown\(\) was called before"):
        job.start()
    ending.join(SOON_S)
    assert not ending.is_alive()
    assert [secret.exists() for secret in secrets] == [False]
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())


def test_an_interrupt_in_rays_own_call_leaves_no_placement_group(make_executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*arguments: Any, **named: Any) -> None:
        placement_group(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(strategy, "placement_group", make)
    with pytest.raises(KeyboardInterrupt):
        make_executor(num_workers=2).start()
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_call_that_is_interrupted_before_it_runs_leaves_no_listener(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ray, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            executor.run(reduced, callbacks=[print])
    assert executor.run(lambda: ray_logger.log({"loss": 1})) == [None, None]


def test_an_interrupted_shutdown_leaves_nothing(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, _ = executor.run(lambda: os.environ["HOROVOD_SECRET_FILE"])
    monkeypatch.setattr(ray, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        executor.shutdown()
    assert not Path(secret).exists()
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())
