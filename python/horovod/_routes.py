"""What each rank of `horovodrun --check`'s second job prints: `python -m horovod --routes`.

Lines of JSON, for the launcher, who puts them together (launcher/doctor/routes.cc): how many of the ports that may be
listened on are free, then how each other host was reached.
"""

from __future__ import annotations

import errno
import json
import socket

from horovod import _env
from horovod._load import load_core

_MOST_PORTS = 4096  # as many slots as a host may have


def _can_listen(port: int) -> bool:
    # As the core does: connections of an earlier listener may linger there.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            return False
    return True


def free_ports(text: str) -> int:
    """How many of the ports "FIRST-LAST" can be listened on, of the first 4096."""
    first, _, last = text.partition("-")
    return sum(_can_listen(port) for port in range(int(first), int(last or first) + 1)[:_MOST_PORTS])


def print_routes() -> None:
    """Needs to be a rank of a job."""
    rank = int(_env.get("HOROVOD_RANK") or 0)
    ports = _env.get("HOROVOD_PORT_RANGE") or ""
    print(json.dumps({"rank": rank, "ports": ports, "free": free_ports(ports) if ports else None}), flush=True)

    def tell(tries: list[tuple[int, str, str, str, int, str]]) -> None:
        keys = ("to", "address", "interface", "outcome", "round_trip_us", "error")
        found = [dict(zip(keys, one, strict=True)) for one in tries]
        print(json.dumps({"rank": rank, "tries": found}), flush=True)

    if int(_env.get("HOROVOD_SIZE") or 1) > 1:
        load_core().try_routes(tell)
