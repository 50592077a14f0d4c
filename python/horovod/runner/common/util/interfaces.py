"""This host's network interfaces and their IPv4 addresses."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Collection

__all__ = ["addresses_by_interface", "ipv4_addresses", "is_loopback"]

_SIOCGIFADDR = 0x8915
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)  # nothing is sent to it: the kernel only chooses a route


def is_loopback(address: str) -> bool:
    """Whether `address`, an IPv4 address, is one of loopback, which only this host can reach."""
    return address.startswith("127.")


def addresses_by_interface() -> dict[str, str]:
    """The IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _by_default_route() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(_DOCUMENTATION_ADDRESS)
        return str(probe.getsockname()[0])
    return None


def ipv4_addresses(nics: Collection[str] | None = None) -> dict[str, str]:
    """A dictionary interface -> address: the interface of the default route first, loopback last.

    `nics`: the names of the interfaces to list; None for all. ValueError if none of them exists and has an address.
    """
    known, first = addresses_by_interface(), _by_default_route()
    chosen = {name: address for name, address in known.items() if not nics or name in nics}
    if not chosen:
        wanted = f"of the interfaces {sorted(nics)}" if nics else "interface"
        raise ValueError(f"no {wanted} has an IPv4 address; this host has {known}")
    ordered = sorted(chosen.items(), key=lambda item: (is_loopback(item[1]), item[1] != first))
    return dict(ordered)
