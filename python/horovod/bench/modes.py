"""How calls end on a GPU, which is chosen when a session begins. What is measured there, is measured in both ways."""

from __future__ import annotations

from typing import Any

from horovod import _env

__all__ = ["MODES", "begin"]

# Whether calls end before the GPU is done (HOROVOD_ENABLE_ASYNC_COMPLETION): by default the host waits for each. On the
# CPU it changes nothing.
MODES = {"default": False, "async completion": True}


def begin(hvd: Any, mode: str, **arguments: Any) -> None:
    """`hvd.init()` in `mode`, whatever the user's environment says."""
    _env.set_async_completion(MODES[mode])
    hvd.init(**arguments)
