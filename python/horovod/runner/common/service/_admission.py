"""Which connections a compute service may have: the rules of runtime/admission.

A connection comes as a stranger. With a first message that only a holder of the key can have made (or recorded: it
proves no more) it is introduced and moves to the second room, out of the strangers' reach; with an answer to the
service's nonce it is proven, and no longer bounded by a room. So silent connections, however many and however fast
they come, cost a real client a second try at worst. For the service's thread only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable

from horovod.runner.common.util.interfaces import is_loopback

MOST_PROVEN = 900
_MOST_CONNECTIONS = MOST_PROVEN + 64  # below the usual limit of 1024 open files
ACCEPTS_PER_TURN = 16  # less than a source's share: those that came before are heard before others take their places
INTRODUCTION_DEADLINE_S = 0.5  # a stranger's first message is complete so long after accept


def source_of(address: str) -> str:
    """What connections are counted by, for an IPv4 address. Anybody on the host may use any address of loopback."""
    return "loopback" if is_loopback(address) else address


class Room:
    """Connections that wait for something: bounded, in all and by source.

    Who comes when the room is full takes the place of the oldest of its own source when that has its share, else of
    the source that has most: a crowd pushes out itself.
    """

    def __init__(self, size: int, per_source: int) -> None:
        self._size = size
        self._per_source = per_source
        self._arrivals = itertools.count()
        self._sources: dict[Hashable, str] = {}
        self._by_source: dict[str, dict[Hashable, int]] = {}  # when each arrived, oldest first; none is empty

    def __len__(self) -> int:
        return len(self._sources)

    def enter(self, connection: Hashable, source: str, full: bool = False) -> Hashable | None:
        """The one that had to go; it is forgotten already. `full`: the room is, whatever its size says."""
        evicted = None
        if len(self._by_source.get(source, ())) >= self._per_source:
            evicted = self._evict_from(source)
        elif self._sources and (full or len(self) >= self._size):
            # Among equals the one that has waited longest.
            has = {name: (len(those), -next(iter(those.values()))) for name, those in self._by_source.items()}
            evicted = self._evict_from(max(has, key=lambda name: has[name]))
        self._by_source.setdefault(source, {})[connection] = next(self._arrivals)
        self._sources[connection] = source
        return evicted

    def leave(self, connection: Hashable) -> str | None:
        """The source of a connection that was here."""
        source = self._sources.pop(connection, None)
        if source is not None:
            del self._by_source[source][connection]
            if not self._by_source[source]:
                del self._by_source[source]
        return source

    def _evict_from(self, source: str) -> Hashable:
        oldest = next(iter(self._by_source[source]))
        self.leave(oldest)
        return oldest


class Admission:
    """For a service with `clients` processes, and hang_up(connection) for those that have to go.

    All clients of a host share a source and may come at once, twice over: rooms and shares grow with their number.
    """

    def __init__(self, clients: int, hang_up: Callable[[Hashable], None]) -> None:
        self._hang_up = hang_up
        self._strangers = Room(64 + 2 * clients, 32 + 2 * clients)
        self._introduced = Room(64 + 2 * clients, 32 + 2 * clients)
        self._proven: set[Hashable] = set()

    def arrive(self, connection: Hashable, source: str) -> bool:
        """False, and it is turned away, if all connections there may be are there and none of them is a stranger."""
        full = len(self._strangers) + len(self._introduced) + len(self._proven) >= _MOST_CONNECTIONS
        if full and not self._strangers:
            return False
        self._make_room(self._strangers.enter(connection, source, full))
        return True

    def introduce(self, connection: Hashable) -> None:
        """Nothing happens when the connection is no stranger, or had to go."""
        source = self._strangers.leave(connection)
        if source is not None:
            self._make_room(self._introduced.enter(connection, source))

    def prove(self, connection: Hashable) -> bool:
        """False if it had to go before, or if the places of the proven are taken."""
        if len(self._proven) >= MOST_PROVEN or self._introduced.leave(connection) is None:
            return False
        self._proven.add(connection)
        return True

    def leave(self, connection: Hashable) -> None:
        """The connection is closed. Nothing happens when it had to go."""
        self._strangers.leave(connection)
        self._introduced.leave(connection)
        self._proven.discard(connection)

    def _make_room(self, evicted: Hashable | None) -> None:
        if evicted is not None:
            self._hang_up(evicted)
