"""The one place of the Python package that reads or writes environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping


def get(name: str) -> str | None:
    """The value of `name`, or None when it is not set."""
    return os.environ.get(name)


def is_one(name: str) -> bool:
    """True when `name` is set to exactly `1`, the way Horovod's own switches are read."""
    return os.environ.get(name) == "1"


def is_true(name: str) -> bool:
    """Whether `name` holds a truth value as the native core reads it: a whole number above 0, true, yes or on."""
    word = os.environ.get(name, "").strip().lower()
    return word in ("true", "yes", "on") or (word.lstrip("+").isdecimal() and int(word) > 0)


def set_one(name: str) -> None:
    """Sets `name` to `1`, visible to the native core too."""
    os.environ[name] = "1"


def apply(values: Mapping[str, str | None]) -> None:
    """Sets each variable; None removes it."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
