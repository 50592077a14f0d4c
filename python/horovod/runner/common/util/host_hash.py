"""A name for what shares memory: a host, or a container on it."""

from __future__ import annotations

import hashlib
import os
import socket

__all__ = ["host_hash"]

_NAMESPACES = "/proc/self/ns"


def _hash(string: str) -> str:
    return hashlib.md5(string.encode(), usedforsecurity=False).hexdigest()


def _namespaces() -> str:
    """The namespaces of this process; two containers of a host differ in them. Empty where the system has none."""
    try:
        names = sorted(os.listdir(_NAMESPACES))
        return " ".join(os.readlink(os.path.join(_NAMESPACES, name)) for name in names)
    except OSError:
        return ""


def host_hash(salt: str | None = None) -> str:
    """The same text on processes that share memory: the host's short name, and a hash of it, namespaces and `salt`.

    An empty salt is none.
    """
    host = socket.gethostname()
    salted = f"-{salt}" if salt else ""
    return f"{host.split('.')[0]}-{_hash(f'{host}-{_namespaces()}{salted}')}"
