"""Names of Horovod's whose feature is not there yet."""

from __future__ import annotations

from typing import NoReturn


def not_built(name: str) -> NoReturn:
    """Says so, when the name is used."""
    raise NotImplementedError(f"{name} is not built yet")
