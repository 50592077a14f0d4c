"""Python objects as text. Unpickling runs code: read only what somebody you trust has written."""

from __future__ import annotations

import base64
import pickle
from typing import Any, Literal, overload

import cloudpickle

__all__ = ["dumps_base64", "loads_base64"]


@overload
def dumps_base64(obj: Any, to_ascii: Literal[True] = ...) -> str: ...
@overload
def dumps_base64(obj: Any, to_ascii: Literal[False]) -> bytes: ...
def dumps_base64(obj: Any, to_ascii: bool = True) -> str | bytes:
    """`obj`, pickled by cloudpickle, in base64: text, or bytes with `to_ascii=False`."""
    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: str | bytes) -> Any:
    """The object that `encoded`, made by dumps_base64, is."""
    return pickle.loads(base64.b64decode(encoded))
