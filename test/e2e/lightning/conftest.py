"""Collected only where Lightning is installed: `make test-spark` has an environment for that."""

from __future__ import annotations

import importlib.util

_spec = importlib.util.find_spec("pytorch_lightning")
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]
