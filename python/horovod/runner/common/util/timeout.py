"""A deadline that says what it was for."""

from __future__ import annotations

import time

__all__ = ["Timeout", "TimeoutException"]


class TimeoutException(Exception):
    """Something did not happen in time."""


class Timeout:
    """A deadline `timeout` seconds from now. `message` may hold `{activity}`.

    >>> Timeout(30, "Gave up {activity}.").remaining() <= 30
    True
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._end = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds left, 0 after the deadline."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining() == 0.0

    def check_time_out_for(self, activity: str) -> None:
        """TimeoutException after the deadline."""
        if self.timed_out():
            raise TimeoutException(f"{self._message.format(activity=activity)} Timeout after {self._timeout} seconds.")
