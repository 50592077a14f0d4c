"""Whether help() answers for every public name: what it does, every argument, and where the errors are described."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

FEWEST_WORDS = 5
OURS = "horovod"
REFERS = re.compile(r"\b(?:[Aa]s|those)\s+(?:for|of|in)\s+[\w.]+")  # to where the rest is described


def _problem(name: str, thing: Any, text: str) -> str | None:
    if len(text.split()) < FEWEST_WORDS:
        return f"{name}: {text!r} is no documentation"
    if isinstance(thing, enum.EnumMeta):
        return None  # its members are there; whoever calls it calls Python's own
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"]
    unnamed = [argument for argument in named if not re.search(rf"\b{argument}\b", text)]
    return f"{name}: nothing is said of {', '.join(unnamed)}" if unnamed and not REFERS.search(text) else None


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that Horovod adds; not those that a framework's base class defines."""
    frameworks = [owner for owner in cls.__mro__ if not owner.__module__.startswith(OURS)]
    names = {name for owner in cls.__mro__ if owner.__module__.startswith(OURS) for name in vars(owner)}
    for name in sorted(names):
        member = inspect.getattr_static(cls, name)
        function = getattr(member, "fget", getattr(member, "__func__", member))
        is_hook = any(hasattr(framework, name) for framework in frameworks)
        if inspect.isfunction(function) and not name.startswith("_") and not is_hook:
            yield name, function


def undocumented(*modules: ModuleType) -> list[str]:
    """A line for each public callable of the modules, and each method of their classes, whose help() lacks something."""
    problems = []
    for module in modules:
        for name in (name for name in module.__all__ if not name.startswith("_")):
            thing, path = getattr(module, name), f"{module.__name__}.{name}"
            if not callable(thing):
                continue
            # The documentation that a class inherits from a framework's says nothing of it.
            text = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
            problems.append(_problem(path, thing, text or ""))
            for method, function in _members(thing) if inspect.isclass(thing) else ():
                own = inspect.getdoc(getattr(thing, method)) or ""
                problems.append(_problem(f"{path}.{method}", function, own))
    return [problem for problem in problems if problem is not None]
