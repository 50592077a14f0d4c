"""What Horovod 0.28 has and this does not: importing such a module or name is an error that says what to do instead."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

_LAUNCHER = "the launcher is a program of its own: start jobs with horovodrun, or functions with horovod.run()"

# By module, which stands for its submodules too.
_REASONS = {
    "horovod.spark.data_loaders": "petastorm's readers are not used; estimators have horovod.spark.common.datamodule",
    "horovod.spark": "there is no such name; docs/api/spark.md lists what horovod.spark has",
    "horovod.ray": "there is no such name; jobs on Ray are started by horovod.ray.RayExecutor",
    "horovod.runner.elastic": "the driver of elastic jobs is no Python module: start them with horovodrun --min-np",
    "horovod.runner": _LAUNCHER,
}


def _reason_for(name: str) -> str | None:
    while name:
        if name in _REASONS:
            return _REASONS[name]
        name = name.rpartition(".")[0]
    return None


class MissingModules(MetaPathFinder):
    """Stands last in sys.meta_path, so that it sees only modules that no other finder has found.

    `from package import name` asks for a module too, where the package has no such name. It passes over an error that
    has the module's name as its `name`, to say "cannot import name" itself: these errors have none. Whoever only asks
    whether a module is there, by importlib.util.find_spec() or the finders, gets None, as for any other.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        reason = _reason_for(name) if name.startswith("horovod.") else None
        if reason is not None and _imports_by(sys._getframe(1)):
            raise ModuleNotFoundError(f"{name}: {reason}")
        return None


def _imports_by(frame: FrameType) -> bool:
    """Whether the frame, which has called a finder, is that of importlib's _find_spec() on behalf of an import."""
    callers = [one.f_globals.get("__name__") for one in (frame, frame.f_back) if one is not None]
    return callers[0] == "importlib._bootstrap" and callers[-1] != "importlib.util"


def getattr_for(module: str, names: str) -> Callable[[str], Any]:
    """The `__getattr__` of a `module` that lacks these `names` of Horovod's, separated by spaces.

    `from module import name` would drop the words of an AttributeError, so it gets an ImportError; hasattr() would pass
    that on, so whatever else asks gets an AttributeError.
    """
    absent = names.split()

    def explain(name: str) -> Any:
        if name not in absent:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        error = ImportError if _imports_now(sys._getframe(1)) else AttributeError
        raise error(f"{module}.{name}: {_reason_for(module)}")

    return explain


def _imports_now(frame: FrameType) -> bool:
    """Whether the frame executes `from ... import ...`."""
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def install() -> None:
    """Adds the finder, once per process, also if the package is imported again."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(MissingModules())
