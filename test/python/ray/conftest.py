"""Collected only where Ray is installed."""

from __future__ import annotations

import importlib.util

_spec = importlib.util.find_spec("ray")
# A folder called ray on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]
