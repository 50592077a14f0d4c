"""Network interfaces as variables, and a map that runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray

from horovod.ray.settings import MiniSettings

__all__ = ["detect_nics", "nics_to_env_var", "map_blocking"]


def detect_nics(
    settings: MiniSettings, all_host_names: Sequence[str] = (), node_workers: Sequence[Any] = ()
) -> list[str]:
    """The network interfaces of the job: those of `settings`, else none, for each connection goes by its route.

    `all_host_names` and `node_workers` have no effect: nothing has to be probed.
    """
    del all_host_names, node_workers
    return list(settings.nics or ())


def nics_to_env_var(nics: Iterable[str]) -> dict[str, str]:
    """The variables that tell a rank to use the network interfaces `nics`; none for an empty list."""
    names = list(nics)
    if not names:
        return {}
    return {"HOROVOD_GLOO_IFACE": names[0], "NCCL_SOCKET_IFNAME": ",".join(names)}


def map_blocking(fn: Callable[[Any], Any], collection: Iterable[Any]) -> list[Any]:
    """ray.get() of what `fn`, which starts a call, returns for each element of `collection`; the calls run together."""
    return list(ray.get([fn(element) for element in collection]))
