"""The loaded native core, with the types of its stub. Importing this raises ImportError when the core is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod._common import stacks
from horovod._load import load_core

if TYPE_CHECKING:
    from horovod import _core as core
else:
    core = load_core()
    stacks.install(core)

__all__ = ["core"]
