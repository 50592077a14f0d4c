"""The JAX module's part of the session: its collectives on the host, its automatic names, and failures of programs."""

from __future__ import annotations

import importlib
from typing import Any

from horovod._common.arrays import ArrayCollectives
from horovod._common.native import core
from horovod._common.session import basics
from horovod._common.session_watch import watch_interrupts
from horovod.common.process_sets import _on_removal
from horovod.jax import _call

__all__ = ["basics", "host", "raise_failure"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

host = ArrayCollectives("horovod.jax")


def raise_failure() -> None:
    """Raises what ended a collective of a compiled function, once; nothing if all went well since the last time.

    JAX itself raises `jax.errors.JaxRuntimeError` with the same text, where the result is first needed, and orders
    programs of this thread that have collectives behind the one that failed: they fail too until this was called.
    HorovodInternalError: ranks disagree, or a rank is lost. KeyboardInterrupt: after Ctrl-C, which has ended the
    session. Requires that no program with collectives runs.
    """
    try:
        core.raise_call_failure()
    except BaseException:
        _call.forget_failed()
        raise


def _after_init(started: bool) -> None:
    """Programs of the last session hold its automatic names, which new ranks count anew, and its number of ranks."""
    if started and _call.was_used():
        _call.forget_failed()
        jax.clear_caches()


watch_interrupts()
basics._add_hooks(_after_init, host.names.restart)
_on_removal(host.names.forget)
