"""RayExecutor on two nodes: who is where, by what address they meet, and the secret of the node without the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from horovod.ray import _secrets


def numbers() -> dict[str, Any]:
    from horovod._common import session
    from horovod._common.arrays import ArrayCollectives

    session.init()
    total = np.ones(1)
    ArrayCollectives("test").allreduce_([total], ["total"], session.Sum)
    secret = Path(os.environ["HOROVOD_SECRET_FILE"])
    return {
        "rank": session.rank(),
        "local": (session.local_rank(), session.local_size()),
        "cross": (session.cross_rank(), session.cross_size()),
        "node": ray.get_runtime_context().get_node_id(),
        "total": total[0],
        "secret": str(secret),
        "modes": (secret.stat().st_mode & 0o777, secret.parent.stat().st_mode & 0o777),
        "address": os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"],
        "interface": os.environ.get("HOROVOD_GLOO_IFACE"),
        "nccl_interface": os.environ.get("NCCL_SOCKET_IFNAME"),
    }


@pytest.fixture(scope="module")
def nodes(make_nodes: Any) -> Any:
    return make_nodes(2, num_cpus=2)


def test_ranks_are_numbered_by_node_and_share_a_secret(nodes: Any, make_executor: Any, eventually: Any) -> None:
    executor = make_executor(num_hosts=2, num_workers_per_host=2)
    executor.start()
    results = executor.run(numbers)
    assert [result["rank"] for result in results] == [0, 1, 2, 3]
    assert [result["local"] for result in results] == [(0, 2), (1, 2)] * 2
    assert [result["cross"] for result in results] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert {result["total"] for result in results} == {4.0}
    assert [result["node"] for result in results[::2]] == [result["node"] for result in results[1::2]]
    assert {result["node"] for result in results} == {node.node_id for node in nodes}
    assert {result["address"] for result in results} == {ray.util.get_node_ip_address()}
    # The driver is on the head, which has no rank: each of the others keeps the secret in a folder of its own.
    secrets = {result["secret"] for result in results}
    assert len(secrets) == 2
    assert {result["modes"] for result in results} == {(0o600, 0o700)}
    executor.shutdown()
    # shutdown() waits 10 s for them to be removed, in which Ray may not have begun it on a busy machine.
    eventually(lambda: not any(Path(secret).parent.exists() for secret in secrets))


def test_a_secret_that_comes_late_is_removed_too(
    make_nodes: Any, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    begin = _secrets._on_node

    def keep_late(secret: str) -> str:
        while not go.exists():
            time.sleep(0.01)
        path = tmp_path / "job" / "secret"
        path.parent.mkdir()
        path.write_text(secret)
        (tmp_path / "came").touch()
        return str(path)

    def on_node(node: str, function: Any, argument: Any) -> Any:
        call = begin(node, function, argument)
        if function is _secrets.forget:
            go.touch()
        return call

    (tmp_path / "mine").write_text("secret", encoding="ascii")
    secrets = _secrets.NodeSecrets()
    monkeypatch.setattr(_secrets, "keep", keep_late)
    monkeypatch.setattr(_secrets, "_on_node", on_node)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s of node"):
        secrets.hand_over(str(tmp_path / "mine"), [ray.get_runtime_context().get_node_id()], 0.1)
    secrets.forget()
    eventually(lambda: (tmp_path / "came").exists() and not (tmp_path / "job").exists())


LEFT = """
import sys
import ray
from horovod.ray import RayExecutor
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=1)
executor.start()
stop = executor._adapter._secrets.forget
executor._adapter._secrets.forget = lambda: (print("cleaned", ray.is_initialized()), stop())
"""


def test_a_script_that_ends_without_shutdown_cleans_up() -> None:
    run = subprocess.run([sys.executable, "-c", LEFT], check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    assert "cleaned True" in run.stdout


@pytest.mark.usefixtures("nodes")
def test_named_interfaces_reach_the_ranks(make_executor: Any) -> None:
    executor = make_executor(num_workers=3)
    executor.settings.nics = ["lo"]
    executor.start()
    results = executor.run(numbers)
    assert [result["local"] for result in results] in ([(0, 2), (1, 2), (0, 1)], [(0, 1), (0, 2), (1, 2)])
    assert {result["total"] for result in results} == {3.0}
    assert {(result["address"], result["interface"], result["nccl_interface"]) for result in results} == {
        ("127.0.0.1", "lo", "lo")
    }
