"""Whether Ray is there; imported before all that needs it."""

from __future__ import annotations

try:
    import ray
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ImportError("horovod.ray needs Ray, which is not installed here: pip install 'ray[default]'") from error

__all__ = ["ray"]
