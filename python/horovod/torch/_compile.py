"""Excludes this package from torch.compile: a collective then breaks the graph once, where it is called.

Otherwise Dynamo would trace our functions, break the graph at the native core within them, and compile the parts. Its
list of packages is changed when Dynamo is loaded, which may be long after this package or never, because loading it
takes a second.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from horovod.torch._private import DYNAMO_RULES, skip_package


class _DynamoRulesFinder(MetaPathFinder):
    """Finds the module of Dynamo's rules, once, and adds a rule after it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != DYNAMO_RULES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_add(module: ModuleType) -> None:
            load(module)
            skip_package(module, "horovod")

        spec.loader.exec_module = load_and_add  # type: ignore[method-assign]  # this loader serves this module only
        return spec


def exclude_from_dynamo() -> None:
    """Excludes the package from every torch.compile of the process."""
    loaded = sys.modules.get(DYNAMO_RULES)
    if loaded is not None:
        skip_package(loaded, "horovod")
    elif not any(isinstance(finder, _DynamoRulesFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DynamoRulesFinder())
