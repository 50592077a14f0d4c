"""Whether XLA compiles the graph that is being traced, and whether it can compile collectives in this process."""

from __future__ import annotations

import ctypes
import functools
import re

import tensorflow as tf

from horovod._common.native import core
from horovod.tensorflow._private import custom_call, is_compiled

_WHAT_TO_SET = (
    "use tf.function(jit_compile=False), or model.compile(..., jit_compile=False) with Keras; Horovod's "
    "BroadcastGlobalVariablesCallback sets it for a model whose jit_compile is on"
)
_OLDEST = (2, 18)


def in_xla() -> bool:
    """Whether XLA will compile the next op."""
    if tf.executing_eagerly():
        return False
    return is_compiled(tf.compat.v1.get_default_graph())


@functools.cache
def _problem_of_version() -> str | None:
    numbers = re.findall(r"\d+", tf.__version__)[:2]
    if tuple(map(int, numbers)) < _OLDEST:
        return f"TensorFlow {tf.__version__} is installed, and that works from TensorFlow 2.18 on"
    try:
        custom_call()
    except ImportError as error:
        return f"TensorFlow {tf.__version__} has no operation for custom calls ({error})"
    register = ctypes.CDLL(core.__file__).hvd_tensorflow_register_xla
    register.restype = ctypes.c_char_p
    text = register()
    return None if text is None else f"TensorFlow {tf.__version__} is installed, and {text.decode()}"


def problem() -> str | None:
    """Why XLA cannot compile collectives in this process; None when it can. May initialise TensorFlow's devices."""
    version = _problem_of_version()
    if version is not None:
        return version
    others = [device.name for device in tf.config.list_logical_devices() if device.device_type != "CPU"]
    return f"XLA would compile for {others[0]}, and Horovod's compiled collectives are for CPUs" if others else None


def check_usable() -> None:
    """RuntimeError, with what to set, where a collective cannot be compiled."""
    why = problem()
    if why is not None:
        raise RuntimeError(f"Horovod's collectives cannot be compiled by XLA here: {why}: {_WHAT_TO_SET}")


def static_shape(tensor: tf.Tensor, name: str) -> tuple[int, ...]:
    """The shape of an input, which XLA has to know. ValueError when it does not."""
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f'"{name}": XLA compiles collectives of known shapes only, and this tensor has shape {tensor.shape}: trace '
            "the function with full shapes (no None in input_signature, no reduce_retracing), or use jit_compile=False"
        )
    return tuple(tensor.shape.as_list())
