"""Packages that are imported when they are first needed, and whose objects are recognised without importing them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def imported(name: str, needed_for: str) -> Any:
    """The module; ImportError says what to install."""
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{needed_for} needs {package}: `pip install {package}` ({error})", name=name) from error


def package_of(thing: Any, kind: str, packages: Sequence[str]) -> str | None:
    """Which of the packages has a class `kind` of which `thing` is an object; None if none has."""
    for name in packages:
        package = sys.modules.get(name)  # who has made an object has imported its package
        if package is not None and isinstance(thing, getattr(package, kind)):
            return name
    return None
