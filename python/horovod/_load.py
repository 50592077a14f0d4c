"""Loads the native core so that it binds to its own copy of libgloo.

PyTorch contains a Gloo of its own. If one is visible in the global symbol scope when the core is loaded, the dynamic
linker would bind our calls to that other version: the core is then opened with RTLD_DEEPBIND, which prefers its own
dependencies. Only then, because DEEPBIND disturbs sanitizers and allocators. Afterwards the core reports which file its
Gloo symbols come from, and any file but libgloo is an ImportError.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from types import ModuleType

# Exported by any shared Gloo, whatever its version: the vtables and the type information of its contexts.
_GLOO_SYMBOLS = ("_ZTVN4gloo7ContextE", "_ZTIN4gloo7ContextE", "_ZTVN4gloo10rendezvous7ContextE")


def _global_gloo_symbol() -> str | None:
    """The first Gloo symbol that is visible in the global scope, or None."""
    program = ctypes.CDLL(None)
    for symbol in _GLOO_SYMBOLS:
        if hasattr(program, symbol):
            return symbol
    return None


def _import_core() -> ModuleType:
    if _global_gloo_symbol() is None:
        return importlib.import_module("horovod._core")
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    try:
        return importlib.import_module("horovod._core")
    finally:
        sys.setdlopenflags(before)


def _check_gloo_library(core: ModuleType) -> None:
    """ImportError if the core's calls of Gloo are bound to another library."""
    library_of = getattr(core, "gloo_library", None)
    if library_of is None:
        return
    library = str(library_of())
    if not os.path.basename(library).startswith("libgloo"):
        raise ImportError(
            f"horovod._core is bound to the Gloo symbols of {library!r}, not to its own libgloo. "
            "Import horovod before the library that exports them, or load that library with RTLD_LOCAL."
        )


def load_core() -> ModuleType:
    """The module `horovod._core`, loaded once per process. Raises ImportError when it is missing or wrongly bound."""
    loaded = sys.modules.get("horovod._core")
    if loaded is not None:
        return loaded
    core = _import_core()
    try:
        _check_gloo_library(core)
    except ImportError:
        del sys.modules["horovod._core"]
        raise
    return core
