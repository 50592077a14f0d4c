"""A program that reaches its cluster by Ray Client: through_client.py ADDRESS. test_ray_client.py runs it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group_table

from horovod.ray import RayExecutor, ray_logger


def train(base: int) -> Any:
    from horovod._common import session

    session.init()
    ray_logger.log({"base": base})
    if base < 0:
        raise FileNotFoundError(2, "no such data", "train.csv")
    return session.rank(), session.size(), base


def stay(begun: str) -> None:
    with open(begun, "w"):
        time.sleep(600)


def shut_down_during_a_call(executor: RayExecutor) -> None:
    secret = executor.execute_single(lambda _: os.environ["HOROVOD_SECRET_FILE"])
    assert os.path.exists(secret)
    with ThreadPoolExecutor(1) as pool, tempfile.TemporaryDirectory() as folder:
        begun = os.path.join(folder, "begun")
        running = pool.submit(executor.run, stay, [begun])
        while not os.path.exists(begun):  # its caller's deadline bounds it
            assert not running.done(), running.result()
            time.sleep(0.01)
        with pytest.raises(RuntimeError, match=r"still runs: shutdown\(\) ends it"):
            executor.run(train, [7])
        executor.shutdown()
        with pytest.raises(Exception, match=r"died|killed"):
            running.result(60)
    assert not os.path.exists(secret)


def interrupt_a_start_that_waits_for_room() -> None:
    def groups() -> set[str]:
        return {group["state"] for group in placement_group_table().values()} - {"REMOVED"}

    def interrupt() -> None:
        while not groups():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    assert not groups()
    Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=9).start()
    assert not groups()


def main() -> None:
    ray.init(sys.argv[1], log_to_driver=False)
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=2)
    executor.start()
    heard: list[Any] = []
    assert executor.run(train, [4], callbacks=[heard.append]) == [(0, 2, 4), (1, 2, 4)]
    assert heard == [{"base": 4}]
    assert ray.get(executor.run_remote(train, [5])) == [(0, 2, 5), (1, 2, 5)]
    assert executor.execute_single(lambda executable: executable) is None
    with pytest.raises(FileNotFoundError, match=r"no such data: 'train\.csv'"):
        executor.run(train, [-1])
    shut_down_during_a_call(executor)
    executor.start()
    with pytest.raises(RuntimeError, match=r"^rank 1 on .* has died: "):
        executor.execute(lambda _: os._exit(3) if os.environ["HOROVOD_RANK"] == "1" else None)
    executor.shutdown()
    elastic = RayExecutor(RayExecutor.create_settings(timeout_s=120), min_workers=2, max_workers=2)
    elastic.start()
    assert elastic.run(train, [6]) == [(0, 2, 6), (1, 2, 6)]
    elastic.shutdown()
    interrupt_a_start_that_waits_for_room()
    print("all was well")


if __name__ == "__main__":
    main()
