"""Public names of Horovod whose feature is not built yet."""

from __future__ import annotations

from typing import NoReturn


def not_built(name: str) -> NoReturn:
    """NotImplementedError that says so. Called when the name is used."""
    raise NotImplementedError(f"{name} is not built yet")
