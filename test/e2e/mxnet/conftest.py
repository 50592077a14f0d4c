"""Collected only where MXNet is installed: in the environment that `make test-mxnet` makes."""

from __future__ import annotations

import importlib.util

_spec = importlib.util.find_spec("mxnet")
# A folder called mxnet on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]
