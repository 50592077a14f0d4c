"""The job's secret on nodes other than the coordinator's: a file of mode 0600 on each, brought by Ray's connections."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["NodeSecrets"]

_FORGET_S = 10.0  # a node that is lost keeps its file, of a job that has ended


def keep(secret: str) -> str:
    """Writes `secret` to a file that only this user may read; its path."""
    path = Path(tempfile.mkdtemp(prefix="hvd-")) / "secret"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secret)
    return str(path)


def forget(path: str) -> None:
    """Removes what keep() has made."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(Path(path).parent)


class NodeSecrets:
    """The files of one job. Used by one thread at a time; forget() removes them."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}  # by node

    def hand_over(self, path: str, nodes: Iterable[str], seconds: float) -> None:
        """Brings what is in the file `path` of this node to the `nodes`, in `seconds` at most.

        TimeoutError if one of them takes longer.
        """
        secret = Path(path).read_text(encoding="ascii")
        calls = {node: _on_node(node, keep, secret) for node in nodes}
        ready, late = ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds) if calls else ([], [])
        self._files = {node: ray.get(call) for node, call in calls.items() if call in ready}
        if late:
            missing = ", ".join(node for node, call in calls.items() if call in late)
            raise TimeoutError(f"start: no answer within {seconds} s of node {missing}; wait longer (timeout_s)")

    def file_of(self, node: str, here: str) -> str:
        """The file of `node`; `here`, the coordinator's, if it got none."""
        return self._files.get(node, here)

    def forget(self) -> None:
        """Removes the files; may be called again."""
        calls = [_on_node(node, forget, file) for node, file in self._files.items()]
        self._files = {}
        if calls:
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=_FORGET_S)
            with contextlib.suppress(RayError):
                ray.get(ready)


def _on_node(node: str, function: Any, argument: str) -> Any:
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=here).remote(argument)
