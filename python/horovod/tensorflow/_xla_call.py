"""One custom call in a graph that XLA compiles: its StableHLO module, and the token that orders calls.

XLA starts independent calls in any order, and each blocks until other ranks have made the same one. So every call reads
the token and assigns it anew. It is a variable, because TensorFlow orders the uses of variables in branches, loops and
inner functions by the order of tracing.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod.tensorflow._private import custom_call, is_part, orders_itself

TYPES = {
    tf.uint8: "ui8",
    tf.int8: "i8",
    tf.uint16: "ui16",
    tf.int16: "i16",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.float16: "f16",
    tf.bfloat16: "bf16",
    tf.float32: "f32",
    tf.float64: "f64",
    tf.bool: "i1",
}

_VERSION = 5  # of XlaCallModule: one that all of TensorFlow 2.18 to 2.21 know
_TOKEN = (tf.int32, ())

Spec = tuple[tf.DType, tuple[int, ...]]  # of a tensor: type and shape


@dataclass(frozen=True)
class Call:
    """What a custom call does. The handler reads the same names (python/src/tensorflow/xla_register.cc)."""

    target: str
    names: tuple[str, ...] = ()  # on the wire, one for each tensor
    process_set_id: int = 0
    reduce_op: int = 1
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    root_rank: int = -1
    equal_rows: bool = False  # whether all ranks must have the same number of rows

    def _attributes(self) -> str:
        integers = {
            "process_set_id": self.process_set_id,
            "reduce_op": self.reduce_op,
            "root_rank": self.root_rank,
            "equal_rows": int(self.equal_rows),
        }
        factors = {"prescale_factor": self.prescale_factor, "postscale_factor": self.postscale_factor}
        texts = [f'names = "{",".join(self.names)}"']
        texts += [f"{name} = {value} : i32" for name, value in integers.items()]
        texts += [f"{name} = {_float_bits(value)} : f64" for name, value in factors.items()]
        return ", ".join(texts)

    def module(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> str:
        """The program with this call alone."""
        arguments = ", ".join(f"%arg{i}: {_type(spec)}" for i, spec in enumerate(inputs))
        taken = ", ".join(f"%arg{i}" for i in range(len(inputs)))
        types_in = ", ".join(map(_type, inputs))
        types_out = ", ".join(map(_type, outputs))
        results = ", ".join(f"%0#{i}" if len(outputs) > 1 else "%0" for i in range(len(outputs)))
        return f"""module @horovod {{
  func.func public @main({arguments}) -> ({types_out}) {{
    %0{f":{len(outputs)}" if len(outputs) > 1 else ""} = stablehlo.custom_call @{self.target}({taken}) {{
      api_version = 4 : i32, has_side_effect = true, backend_config = {{{self._attributes()}}},
      operand_layouts = [{_layouts(inputs)}], result_layouts = [{_layouts(outputs)}]
    }} : ({types_in}) -> ({types_out})
    return {results} : {types_out}
  }}
}}
"""


def _float_bits(value: float) -> str:
    """The bits of the number rounded to float32, the type of the factors of the ops outside XLA."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    return "0x" + struct.pack(">d", single).hex().upper()


def _type(spec: Spec) -> str:
    dtype, shape = spec
    return f"tensor<{''.join(f'{size}x' for size in shape)}{TYPES[dtype]}>"


def _layouts(specs: Sequence[Spec]) -> str:
    """Row-major layouts: otherwise XLA may choose others."""
    orders = [list(range(len(shape)))[::-1] for _, shape in specs]
    return ", ".join(f"dense<{order}> : tensor<{len(order)}xindex>" for order in orders)


@functools.cache
def _token() -> tf.Variable:
    with tf.init_scope(), tf.device("/CPU:0"):
        return tf.Variable(0, dtype=tf.int32, trainable=False, name="horovod_xla_token")


def _handle_in(graph: Any) -> tf.Tensor:
    """The token's handle in the graph. Branches and loops capture that of the outer graph, for their gradients."""
    handle = _token().handle
    if is_part(graph):
        handle = _handle_in(graph.outer_graph)
    return graph.capture(handle)


def _check_surroundings(graph: Any) -> None:
    """RuntimeError if nothing orders this call among those of the outer graphs."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            raise RuntimeError("Horovod's collectives can be compiled in a tf.function, but not in a graph of TF1")
    while hasattr(outer := graph.outer_graph, "outer_graph"):
        if not orders_itself(outer):
            raise RuntimeError(
                "XLA cannot compile the gradient of a collective in a branch or a loop when the tape is outside of the "
                "function that is compiled: move the tape into it, or use jit_compile=False"
            )
        graph = outer


class _TokenUse:
    """Orders one call among those that use the token: it reads the token first and assigns it afterwards."""

    def __init__(self) -> None:
        self._graph: Any = tf.compat.v1.get_default_graph()
        _check_surroundings(self._graph)
        self._handle = _handle_in(self._graph)
        with tf.control_dependencies(self._handle.consumers()):
            self.token = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int32)

    def end(self, token: tf.Tensor) -> None:
        assign = tf.raw_ops.AssignVariableOp(resource=self._handle, value=token)
        if not orders_itself(self._graph):
            self._graph.control_outputs.append(assign)


def emit(
    call: Call,
    tensors: Sequence[tf.Tensor],
    outputs: Sequence[Spec],
    ordered: bool = True,
    node_name: str | None = None,
) -> list[tf.Tensor]:
    """Adds the call to the graph. `ordered`: after all calls that were traced before, before all that follow."""
    inputs: list[Spec] = [(tensor.dtype, tuple(tensor.shape.as_list())) for tensor in tensors]
    token_use = _TokenUse() if ordered else None
    if token_use is not None:
        tensors, inputs, outputs = [*tensors, token_use.token], [*inputs, _TOKEN], [*outputs, _TOKEN]
    results: list[Any] = list(
        custom_call()(
            tensors,
            version=_VERSION,
            module=call.module(inputs, outputs),
            Sout=[shape for _, shape in outputs],
            Tout=[dtype for dtype, _ in outputs],
            platforms=["CPU"],
            name=node_name,
        )
    )
    if token_use is not None:
        token_use.end(results.pop())
    return results
