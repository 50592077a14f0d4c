"""What scripts and integrations import from under Horovod's traditional name for its launcher."""

from __future__ import annotations

from horovod._run import run

__all__ = ["run"]
