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
        self._calls: dict[str, Any] = {}  # of keep(), by node: all that were begun, whatever has come of them
        self._files: dict[str, str] = {}  # by node

    def hand_over(self, path: str, nodes: Iterable[str], seconds: float) -> None:
        """Brings what is in the file `path` of this node to the `nodes`, in `seconds` at most.

        TimeoutError if one of them takes longer.
        """
        secret = Path(path).read_text(encoding="ascii")
        for node in nodes:
            self._calls[node] = _on_node(node, keep, secret)
        calls = list(self._calls.values())
        _, late = ray.wait(calls, num_returns=len(calls), timeout=seconds) if calls else ([], [])
        if late:
            missing = ", ".join(node for node, call in self._calls.items() if call in late)
            raise TimeoutError(f"start: no answer within {seconds} s of node {missing}; wait longer (timeout_s)")
        self._files = dict(zip(self._calls, ray.get(calls), strict=True))

    def file_of(self, node: str, here: str) -> str:
        """The file of `node`; `here`, the coordinator's, if it got none."""
        return self._files.get(node, here)

    def forget(self) -> None:
        """Removes the files, those of nodes that answer later too; may be called again."""
        # forget() gets what keep() will return: Ray runs it when that has ended, and not at all if it has failed.
        kept, self._calls, self._files = self._calls, {}, {}
        calls = [_on_node(node, forget, call) for node, call in kept.items()]
        if calls:
            ready, _ = ray.wait(calls, num_returns=len(calls), timeout=_FORGET_S)
            for call in ready:
                with contextlib.suppress(RayError):
                    ray.get(call)


def _on_node(node: str, function: Any, argument: Any) -> Any:
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=here).remote(argument)
