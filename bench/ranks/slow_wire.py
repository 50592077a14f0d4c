"""A wire with a rate and a delay between network namespaces, which needs nothing of the kernel but tun interfaces.

Each host has an interface whose packets this process carries: a packet leaves when those before it have, at the host's
rate, and comes that much after the delay to whom others may be sending, too. What is slower than a real wire by one
factor in rate and delay behaves as that does, and the time that processors take counts less by as much.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import struct
import threading
import time
from collections.abc import Iterator, Sequence

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x1, 0x1000
_MTU = 9000
_PRIORITY = -10  # of the thread that carries: what waits for a core here is not on the wire


def _interface_in(pid: int) -> int:
    """The other end of a new interface `wire` in the network of that process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as here, open(f"/proc/{pid}/ns/net") as there:
        if libc.setns(there.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"setns to the network of {pid}")
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", b"wire", _IFF_TUN | _IFF_NO_PI))
        finally:
            libc.setns(here.fileno(), 0)
    return end


class Wire:
    """Joins the networks of these processes as 10.77.0.1, 10.77.0.2, ... Used by one thread; carries in its own."""

    def __init__(self, hosts: Sequence[int], bits_per_s: float, delay_s: float) -> None:
        self._s_per_byte = 8 / bits_per_s
        self._delay_s = delay_s
        self._ends = [_interface_in(pid) for pid in hosts]
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._carry)

    @staticmethod
    def up(number: int) -> str:
        """What a host runs for its interface."""
        return f"ip address add 10.77.0.{number}/24 dev wire; ip link set wire mtu {_MTU} txqueuelen 10000 up"

    @contextlib.contextmanager
    def carrying(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            os.close(self._stopped)
            self._thread.join()
            for end in [self._stop, *self._ends]:
                os.close(end)

    def _carry(self) -> None:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
        sends_until = [0.0] * len(self._ends)
        gets_until = [0.0] * len(self._ends)
        under_way: list[tuple[float, int, int, bytes]] = []  # when it comes, its number, to whom, what
        number = 0
        while True:
            patience = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready = select.select([self._stop, *self._ends], [], [], patience)[0]
            if self._stop in ready:
                return
            now = time.monotonic()
            for source, end in enumerate(self._ends):
                for packet in _packets(end) if end in ready else ():
                    target = packet[19] - 1  # the last byte of IPv4's destination
                    if packet[0] >> 4 != 4 or not 0 <= target < len(self._ends):
                        continue
                    takes = len(packet) * self._s_per_byte
                    sends_until[source] = max(now, sends_until[source]) + takes
                    gets_until[target] = max(sends_until[source] + self._delay_s, gets_until[target] + takes)
                    number += 1
                    heapq.heappush(under_way, (gets_until[target], number, target, packet))
            now = time.monotonic()
            while under_way and under_way[0][0] <= now:
                _, _, target, packet = heapq.heappop(under_way)
                os.write(self._ends[target], packet)


def _packets(end: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            yield os.read(end, _MTU)
