"""Horovod without MPI. Import the module of your framework: `import horovod.torch as hvd`."""

from __future__ import annotations

from horovod import _missing
from horovod._run import run

__all__ = ["__version__", "run"]

__version__ = "0.29.0"

_missing.install()
