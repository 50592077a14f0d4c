"""Which hosts are this one, and free ports."""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import Callable, Iterable
from typing import TypeVar

from horovod.runner.common.util.interfaces import addresses_by_interface

__all__ = [
    "filter_local_addresses",
    "find_port",
    "get_driver_ip",
    "get_local_host_addresses",
    "get_local_intfs",
    "resolve_host_address",
]

_PORTS = range(1024, 65536)

_Server = TypeVar("_Server")


@functools.cache
def get_local_host_addresses() -> set[str]:
    """The IPv4 addresses of this host's interfaces, as they were when it was first asked."""
    return set(addresses_by_interface().values())


def resolve_host_address(host_name: str) -> str | None:
    """The IPv4 address of `host_name`; None if it has none. The system's resolver sets how long it takes."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """Those of `all_host_names` that are not this host; a name without an address is another's."""
    local = get_local_host_addresses()
    return [name for name in all_host_names if resolve_host_address(name) not in local]


def get_local_intfs(nic: str | None = None) -> set[str]:
    """The interfaces that have 127.0.0.1; with `nic` only that one, if it has."""
    loopback = {name for name, address in addresses_by_interface().items() if address == "127.0.0.1"}
    return loopback if nic is None else loopback & {nic}


def get_driver_ip(nics: Iterable[str]) -> str:
    """The IPv4 address of the first of the interfaces `nics`. RuntimeError if it has none."""
    first = next(iter(nics), None)
    address = addresses_by_interface().get(first) if first is not None else None
    if address is None:
        raise RuntimeError(f"the network interface {first!r} has no IPv4 address here")
    return address


def find_port(server_factory: Callable[[tuple[str, int]], _Server]) -> tuple[_Server, int]:
    """What `server_factory(("", port))` makes, and the port: the first that it does not raise OSError for.

    It begins at a random port of 1024 to 65535. OSError if there is none.
    """
    start = random.randrange(len(_PORTS))
    for offset in range(len(_PORTS)):
        port = _PORTS[(start + offset) % len(_PORTS)]
        try:
            return server_factory(("", port)), port
        except OSError:
            continue
    raise OSError("no port of 1024 to 65535 is free")
