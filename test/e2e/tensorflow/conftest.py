"""Collected only where TensorFlow is installed: `make test-tensorflow` installs it."""

from __future__ import annotations

import importlib.util

_spec = importlib.util.find_spec("tensorflow")
# A folder called tensorflow on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]
