"""Everything that Horovod uses of TensorFlow and its BatchNormalization beyond the public API; errors name the version.

The only other such thing is the layout of a C++ callback, which python/src/tensorflow/done_callback.cc checks first.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod import __version__

_SUPPORTED = "TensorFlow 2.15 to 2.21"
_UNORDERED = ("tensorflow.python.framework.auto_control_deps", "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS")
_IN_XLA = ("tensorflow.python.ops.control_flow_util", "GraphOrParentsInXlaContext")
_CUSTOM_CALL = ("tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_call_module")
_PARTS = "tensorflow.python.ops.control_flow_v2_func_graphs"
_PARTS_OF_GRAPHS = ((_PARTS, "CondBranchFuncGraph"), (_PARTS, "WhileCondFuncGraph"), (_PARTS, "WhileBodyFuncGraph"))
_ORDERS = "_add_control_dependencies"
_MOMENTS = ("_calculate_mean_and_var", "_moments")  # of Keras 2's layer, and of Keras 3's


def refusal(why: str) -> ImportError:
    """An error that names the versions."""
    return ImportError(
        f"horovod.tensorflow {__version__} works with {_SUPPORTED}; TensorFlow {tf.__version__} is installed, and {why}"
    )


def _find(path: tuple[str, str]) -> Any:
    """The object of that module and name. ImportError, with the versions, if TensorFlow has no such name."""
    module, name = path
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise refusal(f"it has no {module}.{name}") from error


def missing() -> list[str]:
    """The names that Horovod uses and this version of TensorFlow lacks; few programs may need them."""
    lacking = []
    for path in (_UNORDERED, _IN_XLA, _CUSTOM_CALL, *_PARTS_OF_GRAPHS):
        try:
            _find(path)
        except ImportError:
            lacking.append(".".join(path))
    if not hasattr(tf.function(lambda: None).get_concrete_function().graph, _ORDERS):
        lacking.append(f"FuncGraph.{_ORDERS}")
    if moments_method() is None:
        lacking.append(f"BatchNormalization.{' or '.join(_MOMENTS)}")
    return lacking


def leave_unordered(ops: Iterable[str]) -> None:
    """Makes tf.function run these ops always, and as soon as their inputs are ready. ImportError if that fails."""
    module, name = _UNORDERED
    known = _find(_UNORDERED)
    if not isinstance(known, frozenset):
        raise refusal(f"its {name} is no frozenset: collectives of one function would run one after another")
    setattr(importlib.import_module(module), name, known | frozenset(ops))


def is_compiled(graph: Any) -> bool:
    """Whether XLA compiles the graph. False if unknown: then TensorFlow raises when it compiles our ops."""
    try:
        return bool(_find(_IN_XLA)(graph))
    except ImportError:
        return False


def custom_call() -> Any:
    """The function that adds a StableHLO module to a graph. ImportError if there is none."""
    return _find(_CUSTOM_CALL)


def is_part(graph: Any) -> bool:
    """Whether the graph is a branch or a part of a loop."""
    return isinstance(graph, tuple(map(_find, _PARTS_OF_GRAPHS)))


def orders_itself(graph: Any) -> bool:
    """Whether TensorFlow orders the uses of a variable in the graph. Not in the gradient of a whole function."""
    orders = getattr(graph, _ORDERS, None)
    if orders is None:
        raise refusal(f"its graphs have no {_ORDERS}: nobody can tell the order of compiled collectives")
    return bool(orders)


def moments_method() -> str | None:
    """The method with which tf.keras' BatchNormalization computes the moments of a batch; None if unknown."""
    layer = tf.keras.layers.BatchNormalization
    return next((name for name in _MOMENTS if hasattr(layer, name)), None)
