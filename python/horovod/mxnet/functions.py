"""Broadcast of parameters and Python objects; allgather of objects."""

from __future__ import annotations

from typing import Any

from horovod._common.array_objects import allgather_object_of, broadcast_object_of
from horovod._common.calls import set_id
from horovod._common.session import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet._library import mx
from horovod.mxnet._session import host
from horovod.mxnet.mpi_ops import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def _broadcast_parameter(parameter: Any, root_rank: int, name: str) -> None:
    """Of the first context; the copies in others, on this rank, follow it."""
    first, *others = parameter.list_data()
    broadcast_(first, root_rank, name=name)
    for other in others:
        first.copyto(other)


class _InitializeAndBroadcast:
    """What one parameter has instead of its _init_impl(), from then on. A class, so that it can be copied and pickled.

    All calls of broadcast_parameters() for this parameter share one.
    """

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._broadcasts: list[tuple[int, str]] = []

    def add(self, root_rank: int, name: str) -> None:
        if (root_rank, name) not in self._broadcasts:
            self._broadcasts.append((root_rank, name))

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        type(self._parameter)._init_impl(self._parameter, *args, **kwargs)
        if not basics.is_initialized():
            return  # after shutdown(): there are no others
        for root_rank, name in self._broadcasts:
            _broadcast_parameter(self._parameter, root_rank, name)


def _broadcast_when_initialized(parameter: Any, root_rank: int, name: str) -> None:
    hook = vars(parameter).get("_init_impl")
    if not isinstance(hook, _InitializeAndBroadcast):
        hook = parameter._init_impl = _InitializeAndBroadcast(parameter)
    hook.add(root_rank, name)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites parameters with those of global rank `root_rank`, on all ranks. Returns before they have the values.

    Arguments, the same on all ranks but for the values:
        params: a dict or a gluon ParameterDict of parameters or NDArrays, as Block.collect_params() and
            Module.get_params() give them. A parameter whose shape is not known yet is broadcast when it is initialised,
            and each time that it is initialised again: all ranks have to do that.
        root_rank: whose values all get.
        prefix: begins the names of the arrays: calls that may be under way at once need different ones.

    ValueError: `params` is something else. A rank alone does nothing. Else errors as for broadcast_().

    >>> hvd.broadcast_parameters(net.collect_params())
    """
    if not isinstance(params, (dict, mx.gluon.ParameterDict)):
        raise ValueError(
            f"hvd.broadcast_parameters(): expected a dict or a ParameterDict, got {type(params).__name__}"
        )
    for key, value in params.items():
        if not isinstance(value, (mx.nd.NDArray, mx.gluon.Parameter)):
            raise ValueError(
                f"hvd.broadcast_parameters(): {key!r} is a {type(value).__name__}, not an NDArray or a gluon Parameter"
            )
    if basics.size() == 1:
        return
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        if isinstance(value, mx.nd.NDArray):
            broadcast_(value, root_rank, name=name)
            continue
        try:
            value.list_data()
        except mx.gluon.parameter.DeferredInitializationError:
            _broadcast_when_initialized(value, root_rank, name)
        else:
            _broadcast_parameter(value, root_rank, name)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns a copy of global rank `root_rank`'s object `obj`; on the root the object itself. Waits for it.

    `obj`: anything that pickle takes; on other ranks it is not used and may be None. `name` and `process_set`: as for
    broadcast(). HorovodInternalError: a rank is lost, the bytes are not the root's, or Horovod is not initialised.
    """
    return broadcast_object_of(host, obj, root_rank, name, set_id(process_set, "broadcast_object"))


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the list of the objects of all ranks of the set, in rank order.

    `obj`: anything that pickle takes; size and type may differ between ranks. `name`, `process_set` and errors as for
    broadcast_object().
    """
    return allgather_object_of(host, obj, name, set_id(process_set, "allgather_object"))
