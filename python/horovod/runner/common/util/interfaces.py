"""This host's network interfaces and their IPv4 addresses."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Collection

__all__ = ["ipv4_addresses", "is_loopback"]

_SIOCGIFADDR = 0x8915
_DOCUMENTATION_ADDRESS = ("192.0.2.1", 9)  # nothing is sent to it: the kernel only chooses a route


def is_loopback(address: str) -> bool:
    """Whether `address`, an IPv4 address, is one of loopback, which only this host can reach."""
    return address.startswith("127.")


def _address_of(probe: socket.socket, name: str) -> str | None:
    try:
        found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return None  # it has no IPv4 address
    return socket.inet_ntoa(found[20:24])


def _by_default_route(probe: socket.socket) -> str | None:
    try:
        probe.connect(_DOCUMENTATION_ADDRESS)
    except OSError:
        return None
    return str(probe.getsockname()[0])


def ipv4_addresses(nics: Collection[str] | None = None) -> dict[str, str]:
    """A dictionary interface -> address: the interface of the default route first, loopback last.

    `nics`: the names of the interfaces to list; None for all. ValueError if none of them exists and has an address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found = {name: _address_of(probe, name) for _, name in socket.if_nameindex()}
        first = _by_default_route(probe)
    known = {name: address for name, address in found.items() if address is not None}
    chosen = {name: address for name, address in known.items() if not nics or name in nics}
    if not chosen:
        wanted = f"of the interfaces {sorted(nics)}" if nics else "interface"
        raise ValueError(f"no {wanted} has an IPv4 address; this host has {known}")
    ordered = sorted(chosen.items(), key=lambda item: (is_loopback(item[1]), item[1] != first))
    return dict(ordered)
