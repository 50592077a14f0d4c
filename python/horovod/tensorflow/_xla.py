"""The ops for graphs that XLA compiles: the functions of MPI_LIB that horovod.tensorflow uses, as custom calls.

Names on the wire, errors of arguments and gradients are those of the ops. Shapes must be known when a function is
traced: the first dimensions of an allgather and of an alltoall must be the same on all ranks, which is checked when it
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod._common.native import core
from horovod.tensorflow._session import basics
from horovod.tensorflow._xla_call import TYPES, Call, Spec, emit
from horovod.tensorflow._xla_support import check_usable, static_shape

_SCATTERABLE = (tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64)
_REDUCIBLE = (*_SCATTERABLE, tf.uint8, tf.int8)
_MOVABLE = tuple(TYPES)
_ALLOWED = {
    "allreduce": _REDUCIBLE,
    "reducescatter": _SCATTERABLE,
    "allgather": _MOVABLE,
    "broadcast": _MOVABLE,
    "alltoall": _MOVABLE,
}

GRADIENTS: dict[str, Callable[..., Any]] = {}  # by the name of the op; _gradients.py enters them

ShapeOf = Callable[[tuple[int, ...]], tuple[int, ...]]


class _Op:
    """What a gradient function uses of an op."""

    def __init__(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        self.inputs = inputs
        self._attributes = attributes

    def get_attr(self, name: str) -> Any:
        return self._attributes[name]


def _wire_name(name: str, ignore_name_scope: bool, reserve: bool) -> str:
    """The name that the op's node would have. `reserve`: no other node gets that name."""
    unique = str(tf.compat.v1.get_default_graph().unique_name(name, mark_as_used=reserve))
    return unique.rpartition("/")[2] if ignore_name_scope else unique


def _check_types(tensors: Sequence[tf.Tensor], allowed: Sequence[tf.DType], name: str, one: bool) -> None:
    for tensor in tensors:
        if tensor.dtype not in allowed:
            raise TypeError(f'"{name}": expected one of {", ".join(t.name for t in allowed)}, got {tensor.dtype.name}')
        if one and tensor.dtype != tensors[0].dtype:
            raise TypeError(
                f'"{name}": the tensors of a group must have one type, got {tensors[0].dtype.name} and '
                f"{tensor.dtype.name}"
            )


def _same(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _differentiable(op_name: str, attributes: dict[str, Any], run: Callable[..., list[Any]]) -> Callable[..., Any]:
    """`run` with the gradient of the op."""

    def forward(*tensors: Any) -> Any:
        def backward(*grads: Any) -> Any:
            return GRADIENTS[op_name](_Op(tensors, attributes), *grads)

        return run(*tensors), backward

    return tf.custom_gradient(forward)  # type: ignore[no-any-return]


def _collective(
    kind: str,
    tensors: Sequence[tf.Tensor],
    name: str | None,
    attributes: dict[str, Any],
    shape_of: ShapeOf = _same,
    equal_rows: bool = False,
) -> list[tf.Tensor]:
    """The results of `reducescatter`, or of `grouped_reducescatter`, in shapes that XLA can know."""
    check_usable()
    op_name = "Horovod" + kind.title().replace("_", "")
    name = name or op_name
    is_group = kind.startswith("grouped_")
    _check_types(tensors, _ALLOWED[kind.removeprefix("grouped_")], name, one=True)
    outputs: list[Spec] = [(tensor.dtype, shape_of(static_shape(tensor, name))) for tensor in tensors]
    wire = _wire_name(name, attributes["ignore_name_scope"], reserve=False)
    count = len(tensors)
    names = core.group_member_names(wire, count) if is_group else [wire]
    handled = {key: value for key, value in attributes.items() if key != "ignore_name_scope"}
    call = Call(f"horovod_{kind}", tuple(names), equal_rows=equal_rows, **handled)
    run = _differentiable(op_name, attributes, lambda *given: emit(call, given, outputs, node_name=name))
    return list(run(*tensors))


def _set_size(process_set_id: int) -> int:
    return basics._process_set_size(process_set_id)


def _rows_of_all(process_set_id: int, rows: int | None) -> ShapeOf:
    """The shape of an allgather of equal shares, or with `rows` in all."""

    def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
        first, *rest = shape or (1,)
        return (rows if rows is not None else first * _set_size(process_set_id), *rest)

    return shape_of


def _own_share(name: str, process_set_id: int) -> ShapeOf:
    """The shape of a reducescatter: the first ranks have one row more."""

    def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
        if not shape:
            raise ValueError(f'"{name}": expected a tensor with at least one dimension, got a scalar')
        size, rank = _set_size(process_set_id), basics._process_set_rank(process_set_id)
        return (shape[0] // size + int(rank < shape[0] % size), *shape[1:])

    return shape_of


def _check_scatter(name: str | None, reduce_op: int) -> None:
    if reduce_op not in (basics.Average, basics.Sum):
        raise tf.errors.AbortedError(None, None, f'reducescatter "{name}": expected Average or Sum, not op {reduce_op}')


class XlaOps:
    """The functions of MPI_LIB, for a graph that XLA compiles. RuntimeError where it cannot."""

    def horovod_allreduce(self, tensor: Any, name: str | None = None, **attributes: Any) -> Any:
        return _collective("allreduce", [tensor], name, attributes)[0]

    def horovod_grouped_allreduce(
        self, tensors: Sequence[Any], name: str | None = None, **attributes: Any
    ) -> list[Any]:
        return _collective("grouped_allreduce", tensors, name, attributes)

    def allreduce_each(
        self, tensors: Sequence[Any], names: Sequence[str], ignore_name_scope: bool, **attributes: Any
    ) -> list[Any]:
        """Allreduces under names of their own, of any types, in one call, so that no order is fixed among them."""
        check_usable()
        for tensor, name in zip(tensors, names, strict=True):
            _check_types([tensor], _REDUCIBLE, name, one=False)
        outputs: list[Spec] = [(t.dtype, static_shape(t, name)) for t, name in zip(tensors, names, strict=True)]
        wire = tuple(_wire_name(name, ignore_name_scope, reserve=True) for name in names)
        call = Call("horovod_allreduce", wire, **attributes)

        def forward(*given: Any) -> Any:
            def backward(*grads: Any) -> Any:
                again = [f"gradient_of_{name}" for name in names]
                return self.allreduce_each(grads, again, ignore_name_scope, **attributes)

            return emit(call, given, outputs), backward

        return list(tf.custom_gradient(forward)(*tensors))

    def horovod_broadcast(self, tensor: Any, name: str | None = None, **attributes: Any) -> Any:
        return _collective("broadcast", [tensor], name, attributes)[0]

    def horovod_allgather(
        self, tensor: Any, name: str | None = None, rows: int | None = None, **attributes: Any
    ) -> Any:
        """`rows`: how many all ranks have together, where they need not have the same number."""
        shape_of = _rows_of_all(attributes["process_set_id"], rows)
        return _collective("allgather", [tensor], name, attributes, shape_of, rows is None)[0]

    def horovod_grouped_allgather(
        self, tensors: Sequence[Any], name: str | None = None, **attributes: Any
    ) -> list[Any]:
        shape_of = _rows_of_all(attributes["process_set_id"], None)
        return _collective("grouped_allgather", tensors, name, attributes, shape_of, True)

    def horovod_reducescatter(self, tensor: Any, name: str | None = None, **attributes: Any) -> Any:
        _check_scatter(name, attributes["reduce_op"])
        shape_of = _own_share(name or "HorovodReducescatter", attributes["process_set_id"])
        return _collective("reducescatter", [tensor], name, attributes, shape_of)[0]

    def horovod_grouped_reducescatter(
        self, tensors: Sequence[Any], name: str | None = None, **attributes: Any
    ) -> list[Any]:
        _check_scatter(name, attributes["reduce_op"])
        shape_of = _own_share(name or "HorovodGroupedReducescatter", attributes["process_set_id"])
        return _collective("grouped_reducescatter", tensors, name, attributes, shape_of)

    def horovod_alltoall(self, tensor: Any, splits: Any, name: str | None = None, **attributes: Any) -> tuple[Any, Any]:
        """Equal shares only: XLA needs the shape of the result when it compiles."""
        size = _set_size(attributes["process_set_id"])
        shares = tf.get_static_value(splits)
        rows = static_shape(tensor, name or "HorovodAlltoall")[:1]
        is_equal = shares is not None and all(share * size == sum(rows) for share in shares)
        if not is_equal:
            raise ValueError(
                f'alltoall "{name}": in a function that XLA compiles the splits must be constant, and the same for all '
                f"{size} ranks; leave them out, or use jit_compile=False"
            )
        (result,) = _collective("alltoall", [tensor], name, attributes, equal_rows=True)
        return result, tf.fill([size], sum(rows) // size)

    def horovod_join(self) -> Any:
        check_usable()
        return emit(Call("horovod_join"), [], [(tf.int32, ())])[0]

    def horovod_size(self, process_set_id: int = 0, name: str | None = None) -> Any:
        return _query("horovod_size", name, process_set_id)

    def horovod_process_set_included(self, process_set_id: int = 0, name: str | None = None) -> Any:
        return _query("horovod_process_set_included", name, process_set_id)

    def horovod_rank(self, name: str | None = None) -> Any:
        return _query("horovod_rank", name)

    def horovod_local_rank(self, name: str | None = None) -> Any:
        return _query("horovod_local_rank", name)

    def horovod_local_size(self, name: str | None = None) -> Any:
        return _query("horovod_local_size", name)


def _query(target: str, name: str | None, process_set_id: int = 0) -> Any:
    check_usable()
    call = Call(target, process_set_id=process_set_id)
    return emit(call, [], [(tf.int32, ())], ordered=False, node_name=name)[0]


XLA_OPS = XlaOps()
