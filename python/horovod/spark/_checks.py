"""The arguments of run() and run_elastic(), checked before anything starts."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, TextIO

from horovod import _env

_START_TIMEOUT = "HOROVOD_SPARK_START_TIMEOUT"
_DEFAULT_START_TIMEOUT_S = 600


class Checks:
    """Each gives the value back, or raises an error that begins with the name of the function that was called."""

    def __init__(self, caller: str) -> None:
        self.caller = caller

    def whole_number(self, name: str, value: Any, least: int = 1) -> int | None:
        """Of any type of whole numbers, such as NumPy's; or None."""
        if value is None:
            return None
        try:
            number = operator.index(value)
        except TypeError:
            number = least - 1
        if isinstance(value, bool) or number < least:
            raise ValueError(f"{self.caller}: {name}={value!r}, expected a whole number from {least} on")
        return number

    def seconds(self, name: str, value: Any) -> int:
        """Rounded up."""
        is_number = isinstance(value, SupportsFloat) and not isinstance(value, bool)
        if not is_number or not 0 < float(value) < math.inf:
            raise ValueError(f"{self.caller}: {name}={value!r}, expected a number of seconds above 0")
        return math.ceil(float(value))

    def start_timeout(self, given: float | None) -> int:
        """Its default is that of HOROVOD_SPARK_START_TIMEOUT."""
        if given is not None:
            return self.seconds("start_timeout", given)
        text = _env.get(_START_TIMEOUT)
        if not text:
            return _DEFAULT_START_TIMEOUT_S
        if not text.strip().isdecimal() or int(text) < 1:
            raise ValueError(f"{_START_TIMEOUT}={text}: expected a whole number of seconds from 1 on")
        return int(text)

    def env(self, env: Mapping[str, str | None]) -> dict[str, str | None]:
        """Variables of ranks; None removes one."""
        for name, value in env.items():
            if not isinstance(name, str) or not name or "=" in name:
                raise ValueError(f"{self.caller}: env has {name!r}, expected the name of a variable")
            if value is not None and not isinstance(value, str):  # type: ignore[redundant-expr, unused-ignore]
                raise TypeError(
                    f"{self.caller}: env has {name}={value!r}, expected a text, or None to remove the variable"
                )
        return dict(env)

    def nics(self, nics: Sequence[str] | str | None) -> tuple[str, ...]:
        """Names of interfaces, from a list or a text with commas."""
        return tuple(nics.split(",") if isinstance(nics, str) else nics or ())

    def stream(self, name: str, stream: TextIO | None) -> TextIO | None:
        """Something to write text to, or None."""
        if stream is not None and not callable(getattr(stream, "write", None)):
            raise TypeError(f"{self.caller}: {name}={stream!r}, expected a text file or stream to write to")
        return stream
