"""Horovod without MPI. Import the module of your framework: `import horovod.torch as hvd`."""

# Without `from __future__ import annotations`, which would be a third name here.
from horovod import _missing
from horovod._run import run

__all__ = ["__version__", "run"]

__version__ = "0.29.0"

_missing.install()
