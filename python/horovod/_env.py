"""The only module of the Python package that reads or writes environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

_ASYNC_COMPLETION = "HOROVOD_ENABLE_ASYNC_COMPLETION"
_DYNAMIC_PROCESS_SETS = "HOROVOD_DYNAMIC_PROCESS_SETS"


def get(name: str) -> str | None:
    """The value of `name`, or None when it is not set."""
    return os.environ.get(name)


def all_with_prefix(prefix: str) -> dict[str, str]:
    """The variables whose names begin with `prefix`."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def is_true(name: str) -> bool:
    """Whether `name` holds a truth value as the native core reads it: a whole number above 0, true, yes or on."""
    return says_yes(os.environ.get(name))


def says_yes(value: str | None) -> bool:
    """The same of a value that is not set here."""
    word = (value or "").strip().lower()
    return word in ("true", "yes", "on") or (word.lstrip("+").isdecimal() and int(word) > 0)


def elastic() -> bool:
    """Whether the number of ranks may change while the job runs."""
    return is_true("HOROVOD_ELASTIC")


def has_grace() -> bool:
    """Whether a rank that gets SIGTERM may leave its elastic job later."""
    return elastic() and is_true("HOROVOD_ELASTIC_GRACE")


def dynamic_process_sets() -> bool:
    """Whether process sets may be added and removed while the job runs."""
    return is_true(_DYNAMIC_PROCESS_SETS)


def allow_dynamic_process_sets() -> None:
    """Sets the variable that allows process sets to change. The native core reads it too."""
    os.environ[_DYNAMIC_PROCESS_SETS] = "1"


def set_async_completion(wanted: bool) -> None:
    """Whether calls on GPUs end before the GPU is done, in sessions that begin after this. The native core reads it."""
    os.environ[_ASYNC_COMPLETION] = "1" if wanted else "0"


def apply(values: Mapping[str, str | None]) -> None:
    """Sets each variable; None removes it."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
