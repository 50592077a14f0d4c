"""Which hosts a job may use."""

from __future__ import annotations

import enum

__all__ = ["HostUpdateResult"]


class HostUpdateResult(enum.IntFlag):
    """How the hosts differ from what they were."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added
