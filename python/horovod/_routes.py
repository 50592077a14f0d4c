"""What each rank of `horovodrun --check`'s second job prints: `python -m horovod --routes`.

Lines of JSON, for the launcher, who puts them together (launcher/doctor/routes.cc): how many of the ports that may be
listened on are free, then how each other host was reached.
"""

from __future__ import annotations

import json

from horovod import _env
from horovod._load import load_core

_KEYS = ("to", "address", "interface", "outcome", "round_trip_us", "error")


def _short(one: tuple[int, str, str, str, int, str]) -> object:
    """What is well takes a third of the space of the other: a large job has many of these."""
    to, address, interface, outcome, round_trip_us, _ = one
    return [to, round_trip_us, address, interface] if outcome == "reached" else dict(zip(_KEYS, one, strict=True))


def _print(line: dict[str, object]) -> None:
    print(json.dumps(line, separators=(",", ":")), flush=True)


def print_routes() -> None:
    """Needs to be a rank of a job."""
    rank = int(_env.get("HOROVOD_RANK") or 0)
    ports = _env.get("HOROVOD_PORT_RANGE") or ""
    core = load_core()
    _print({"rank": rank, "ports": ports, "free": core.count_free_ports() if ports else None})
    if int(_env.get("HOROVOD_SIZE") or 1) > 1:
        core.try_routes(lambda tries: _print({"rank": rank, "tries": [_short(one) for one in tries]}))
