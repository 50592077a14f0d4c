"""A deadline whose error says what took too long."""

from __future__ import annotations

import time

__all__ = ["Timeout", "TimeoutException"]


class TimeoutException(Exception):
    """Something did not happen before its deadline."""


class Timeout:
    """A deadline `timeout` seconds from now. `message` is the error's text; `{activity}` in it is replaced.

    >>> Timeout(30, "Gave up {activity}.").remaining() <= 30
    True
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._end = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds until the deadline; 0.0 after it."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining() == 0.0

    def check_time_out_for(self, activity: str) -> None:
        """TimeoutException, which names the `activity`, if the deadline has passed."""
        if self.timed_out():
            raise TimeoutException(f"{self._message.format(activity=activity)} Timeout after {self._timeout} seconds.")
