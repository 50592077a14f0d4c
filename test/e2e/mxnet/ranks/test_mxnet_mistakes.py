"""Wrong calls are refused with a reason, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest

import horovod.mxnet as hvd
from documented import undocumented
from mxnet_world import assert_is, assert_usable, everybodys, meet, mine


def on_each(call: Callable[[Any], Any]) -> list[Callable[[], Any]]:
    """A call with something that no collective takes."""
    return [lambda: call(np.ones(3)), lambda: call([1.0])]


def test_what_is_no_ndarray() -> None:
    calls = (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter, lambda x: hvd.broadcast(x, 0))
    for call in calls:
        for wrong in on_each(call):
            with pytest.raises(AssertionError, match="expected an mxnet NDArray, got"):
                wrong()
    with pytest.raises(AssertionError, match=r"grouped_allgather\(\): expected an mxnet NDArray, got ndarray"):
        hvd.grouped_allgather([mine(), np.ones(3)])


def test_types_and_kinds_that_do_not_travel() -> None:
    with mx.util.np_array(True):
        flags = mx.np.array([True, False], dtype="bool")
    for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall, lambda x: hvd.broadcast_(x, 0)):
        with pytest.raises(ValueError, match="type bool is not supported; supported are float32"):
            call(flags)
        with pytest.raises(ValueError, match="row_sparse array is not supported"):
            call(mx.nd.ones((3, 2)).tostype("row_sparse"))


def test_operations_that_are_refused() -> None:
    for call in (hvd.allreduce, hvd.allreduce_):
        with pytest.raises(AssertionError, match="Adasum"):
            call(mine(), op=hvd.Adasum)
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
        with pytest.raises(AssertionError, match="Adasum"):
            call([mine()], op=hvd.Adasum)
    for op in (hvd.Max, hvd.Adasum):
        with pytest.raises(AssertionError, match="only ops are Average and Sum"):
            hvd.reducescatter(mine(), op=op)
        with pytest.raises(AssertionError, match="only ops are Average and Sum"):
            hvd.grouped_reducescatter([mine()], op=op)
    with pytest.raises(ValueError, match="op"):
        hvd.allreduce(mine(), op=99)


def test_shapes_that_are_refused() -> None:
    with mx.util.np_shape(True):
        scalar = mx.np.array(1.0)
        with pytest.raises(ValueError, match="without dimensions"):
            hvd.reducescatter(scalar)
        for call in (hvd.allgather, hvd.alltoall):
            with pytest.raises(mx.MXNetError, match="dimension"):
                call(scalar)
    with pytest.raises(ValueError, match=r"one context, got cpu\(0\), cpu\(1\)"):
        hvd.grouped_allreduce([mx.nd.ones(2), mx.nd.ones(2, mx.cpu(1))])


def test_arrays_of_a_group_that_overlap_and_are_written() -> None:
    """The result would be a sum of sums, or not, by chance."""
    for parts in ([(0, 6), (0, 6)], [(0, 2), (0, 6)], [(3, 6), (2, 4)]):
        x = mine("float32", (6,))
        group = [x[begin:end] for begin, end in parts]
        with pytest.raises(mx.MXNetError, match="must not overlap"):
            hvd.grouped_allreduce_(group, op=hvd.Sum, name="overlap")[0].wait_to_read()
    assert_usable()


def test_splits_that_are_refused() -> None:
    rows = mine("float32", (hvd.size(), 2))
    with pytest.raises(ValueError, match="must be of type int32, not float32"):
        hvd.alltoall(rows, splits=mx.nd.ones(hvd.size()))
    with pytest.raises(ValueError, match="one dimension"):
        hvd.alltoall(rows, splits=[[1] * hvd.size()])
    with pytest.raises(ValueError, match="whole numbers"):
        hvd.alltoall(rows, splits=[1.5] * hvd.size())
    for splits in ([1] * (hvd.size() + 1), [100] * hvd.size()):
        with pytest.raises(mx.MXNetError, match="split"):
            hvd.alltoall(rows, splits=splits)
    assert_usable()


def test_a_root_that_does_not_exist() -> None:
    with pytest.raises(mx.MXNetError, match="root"):
        hvd.broadcast(mine(), hvd.size()).asnumpy()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_sets_that_are_not_registered_and_ranks_that_are_no_members() -> None:
    with pytest.raises(ValueError, match="is not registered"):
        hvd.allreduce(mine(), process_set=hvd.ProcessSet([0]))
    first = hvd.add_process_set([0])
    if hvd.rank() > 0:
        with pytest.raises(mx.MXNetError, match="not a member"):
            hvd.allreduce(mine(), process_set=first).wait_to_read()
        with pytest.raises(mx.MXNetError, match="not a member"):
            hvd.allgather(mine(), process_set=first)
    meet()
    hvd.remove_process_set(first)
    assert_usable()


REFUSED: dict[str, Callable[[], Any]] = {
    "no array": lambda: hvd.allreduce(1.0),
    "op": lambda: hvd.allreduce(mine(), op=99),
    "factor": lambda: hvd.allreduce(mine(), prescale_factor="a"),
    "type": lambda: hvd.allreduce(mx.nd.ones((2, 2)).tostype("csr")),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_a_refused_call_uses_no_automatic_name(what: str) -> None:
    if hvd.rank() == 0:
        with pytest.raises((AssertionError, ValueError)):
            REFUSED[what]()
    assert_is(hvd.allreduce(mine(), op=hvd.Sum), sum(everybodys()))


def test_arguments_of_training() -> None:
    with pytest.raises(ValueError, match="expected a dict or a ParameterDict, got list"):
        hvd.broadcast_parameters([mine()])
    with pytest.raises(ValueError, match="'w' is a ndarray, not an NDArray"):
        hvd.broadcast_parameters({"w": np.ones(2)})
    with pytest.raises(ValueError, match=r"expected a mxnet\.optimizer\.Optimizer, got str"):
        hvd.DistributedOptimizer("sgd")
    sgd = mx.optimizer.SGD()
    with pytest.raises(ValueError, match="num_groups must be a number from 0, got -1"):
        hvd.DistributedOptimizer(sgd, num_groups=-1)
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    for options, match in (({"num_groups": 1.5}, "num_groups"), ({"gradient_predivide_factor": 0}, "must be positive")):
        with pytest.raises(ValueError, match=match):
            hvd.DistributedTrainer(net.collect_params(), "sgd", **options)
    net.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    with pytest.raises(ValueError, match=r"cpu\(0\), cpu\(1\); each rank must have its own"):
        hvd.DistributedTrainer(net.collect_params(), "sgd")
    assert sgd.rescale_grad == 1.0


def test_training_without_a_session() -> None:
    hvd.shutdown()
    for call in (lambda: hvd.DistributedOptimizer(mx.optimizer.SGD()), lambda: hvd.DistributedTrainer([], "sgd")):
        with pytest.raises(ValueError, match="not been initialized"):
            call()
    hvd.init()
    assert_usable()


def test_what_the_module_has_and_what_not() -> None:
    assert undocumented(hvd) == []
    for name in ("init", "rank", "shutdown", "Sum", "nccl_built"):
        assert getattr(hvd.mpi_ops, name) is getattr(hvd, name), name
    assert hvd.mpi_ops._basics.rank() == hvd.rank()
    for name in ("join", "barrier", "poll", "synchronize", "SyncBatchNorm", "elastic"):
        assert not hasattr(hvd, name), name
