"""Each collective, in every type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest

import horovod.mxnet as hvd
from mxnet_world import TYPES, array_of, assert_is, everybodys, meet, mine
from rank_world import REDUCTIONS


@pytest.mark.parametrize("dtype", TYPES)
def test_allreduce_of_every_type(dtype: str) -> None:
    for name, expected in REDUCTIONS.items():
        op = getattr(hvd, name)
        if name == "Product" and dtype in ("int8", "uint8"):
            continue  # three ranks' products do not fit
        given = mine(dtype, (2, 2))
        assert_is(hvd.allreduce(given, op=op), expected(everybodys(dtype, (2, 2))), dtype)
        assert_is(given, array_of(hvd.rank(), dtype, (2, 2)), dtype)  # it stays as it was
        assert hvd.allreduce_(given, op=op) is given
        assert_is(given, expected(everybodys(dtype, (2, 2))), dtype)


def test_averages_and_factors() -> None:
    total = sum(everybodys())
    assert_is(hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25), total / 2)
    for made in (hvd.allreduce(mine("float64")), hvd.allreduce_(mine("float64"), op=hvd.Average)):
        np.testing.assert_allclose(made.asnumpy(), total / hvd.size(), rtol=1e-15)
    with pytest.warns(DeprecationWarning, match="average"):
        assert_is(hvd.allreduce(mine(), average=False), total)
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(mine(), average=True, op=hvd.Sum)


def test_groups() -> None:
    shapes = [(3,), (2, 2), (70_000,)]
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
        for name in ("group", None):
            given = [mine("float32", shape) for shape in shapes]
            made = call(given, op=hvd.Sum, name=name)
            assert [one is two for one, two in zip(made, given, strict=True)] == [call is hvd.grouped_allreduce_] * 3
            for one, shape in zip(made, shapes, strict=True):
                assert_is(one, sum(everybodys("float32", shape)))
    nothing: list[Any] = []
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_allgather, hvd.grouped_reducescatter):
        assert call(nothing) is nothing


def test_a_group_of_several_types() -> None:
    given = [mine("float32"), mine("int64", (5,)), mine("float16", (1,))]
    for one, dtype in zip(hvd.grouped_allreduce(given, op=hvd.Sum), ("float32", "int64", "float16"), strict=True):
        assert_is(one, sum(everybodys(dtype, one.shape)), dtype)


def test_parts_of_one_memory_in_a_group() -> None:
    """MXNet's engine would wait for ever for an operation that names one memory twice."""
    whole = mine("float32", (6,))
    hvd.grouped_allreduce_([whole[0:2], whole[2:4], whole[4:6]], op=hvd.Sum)
    assert_is(whole, sum(everybodys("float32", (6,))))
    first, both = hvd.grouped_allreduce([whole[0:2], whole], op=hvd.Max)
    assert_is(first, sum(everybodys("float32", (6,)))[0:2])
    assert_is(both, sum(everybodys("float32", (6,))))


@pytest.mark.parametrize("dtype", TYPES)
def test_broadcast_of_every_type(dtype: str) -> None:
    for root in range(hvd.size()):
        given = mine(dtype)
        assert_is(hvd.broadcast(given, root), array_of(root, dtype), dtype)
        assert_is(given, array_of(hvd.rank(), dtype), dtype)
        assert hvd.broadcast_(given, root, name="in place") is given
        assert_is(given, array_of(root, dtype), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_allgather_of_every_type_with_different_rows(dtype: str) -> None:
    rows = [array_of(rank, dtype, (rank + 1, 2)) for rank in range(hvd.size())]
    given = mine(dtype, (hvd.rank() + 1, 2))
    assert_is(hvd.allgather(given), np.concatenate(rows), dtype)
    first, second = hvd.grouped_allgather([given, mine(dtype, (2,))], name="gathered")
    assert_is(first, np.concatenate(rows), dtype)
    assert_is(second, np.concatenate([array_of(rank, dtype, (2,)) for rank in range(hvd.size())]), dtype)


def test_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    made = hvd.alltoall(mine("float32", (2 * size, 3)))
    assert_is(made, np.concatenate([array_of(r, shape=(2 * size, 3))[2 * rank : 2 * rank + 2] for r in range(size)]))
    given = np.full((sum(range(size + 1)), 2), rank, np.int32)
    splits = list(range(1, size + 1))  # the first rank gets one row of each, the second two
    for as_given in (splits, np.array(splits), np.array(splits, np.int32), mx.nd.array(splits, dtype="int32")):
        made, received = hvd.alltoall(mx.nd.array(given, dtype="int32"), splits=as_given)
        assert_is(made, np.repeat(np.arange(size), rank + 1)[:, None] * np.ones((1, 2)), "int32")
        assert_is(received, [rank + 1] * size, "int32")


@pytest.mark.parametrize("dtype", TYPES)
def test_reducescatter_of_every_type(dtype: str) -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = size + 1  # the first rank gets two, the others one
    share = slice(0, 2) if rank == 0 else slice(rank + 1, rank + 2)
    total = sum(everybodys(dtype, (rows, 2)))
    given = mine(dtype, (rows, 2))
    assert_is(hvd.reducescatter(given, op=hvd.Sum), total[share], dtype)
    assert_is(hvd.reducescatter(given, op=hvd.Sum, prescale_factor=3.0), 3 * total[share], dtype)
    first, second = hvd.grouped_reducescatter([given, mine(dtype, (size,))])
    averaged = np.trunc(total / size) if "int" in dtype else total / size
    np.testing.assert_allclose(first.asnumpy(), averaged[share], rtol=2e-3)
    assert second.shape == (1,)


def test_arrays_without_elements() -> None:
    with mx.util.np_shape(True):
        nothing = mx.nd.zeros((0, 3))
        assert hvd.allreduce(nothing).shape == (0, 3)
        assert hvd.broadcast(nothing, 0).shape == (0, 3)
        gathered = hvd.allgather(nothing if hvd.rank() > 0 else mx.nd.ones((2, 3)))
        assert_is(gathered, np.ones((2, 3)))
        made, received = hvd.alltoall(mine("float32", (2, 3)), splits=[2] + [0] * (hvd.size() - 1))
        assert made.shape == ((2 * hvd.size(), 3) if hvd.rank() == 0 else (0, 3))
        assert_is(received, [2 if hvd.rank() == 0 else 0] * hvd.size(), "int32")


def test_arrays_of_numpys_kind() -> None:
    given = mx.np.array(array_of(hvd.rank()), dtype="float32")
    calls: list[Callable[[], Any]] = [
        lambda: hvd.allreduce(given),
        lambda: hvd.broadcast(given, 0),
        lambda: hvd.allgather(given),
        lambda: hvd.reducescatter(given),
    ]
    for call in calls:
        assert isinstance(call(), mx.np.ndarray)
    with mx.util.np_shape(True):
        scalar = hvd.allreduce(mx.np.array(hvd.rank() + 1.0), op=hvd.Sum)
        assert scalar.shape == ()
        assert float(scalar) == sum(range(1, hvd.size() + 1))


def test_arrays_that_onednn_has_left_in_a_layout_of_its_own() -> None:
    convolution = mx.gluon.nn.Conv2D(32, 3, in_channels=16, weight_initializer=mx.init.One())
    convolution.initialize()
    made = convolution(mx.nd.ones((2, 16, 8, 8)) * (hvd.rank() + 1))
    total = 144.0 * sum(range(1, hvd.size() + 1))
    assert_is(hvd.allreduce(made, op=hvd.Sum), np.full((2, 32, 6, 6), total))
    assert hvd.allgather(made).shape == (2 * hvd.size(), 32, 6, 6)
    with pytest.raises(mx.MXNetError, match="pass a copy of the array"):
        hvd.allreduce(made.reshape((-1,)), name="part").wait_to_read()  # nothing tells that this is one, too
    weight = convolution.weight.data()  # an inference has changed its layout too
    hvd.allreduce_(weight, op=hvd.Sum)
    assert_is(weight, np.full((32, 16, 3, 3), hvd.size()))


def test_another_context_of_the_host() -> None:
    made = hvd.allreduce(mx.nd.ones(3, mx.cpu(1)), op=hvd.Sum)
    assert made.context == mx.cpu(1)
    assert_is(made, [hvd.size()] * 3)


def test_process_sets() -> None:
    size = hvd.size()
    sets = [hvd.add_process_set([rank]) for rank in range(size)] if size > 1 else [hvd.global_process_set]
    own = sets[hvd.rank()]
    assert_is(hvd.allreduce(mine(), op=hvd.Sum, process_set=own), array_of(hvd.rank()))
    assert_is(hvd.allgather(mine(), process_set=own), array_of(hvd.rank()))
    assert_is(hvd.broadcast(mine(), hvd.rank(), process_set=own), array_of(hvd.rank()))
    assert_is(hvd.alltoall(mine(), process_set=own), array_of(hvd.rank()))
    assert_is(hvd.reducescatter(mine(), process_set=own), array_of(hvd.rank()))
    assert hvd.allgather_object(hvd.rank(), process_set=own) == [hvd.rank()]
    meet()
    for each in sets if size > 1 else []:
        hvd.remove_process_set(each)
    assert_is(hvd.allreduce(mine(), op=hvd.Sum), sum(everybodys()))


def test_objects() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast_object({"rank": hvd.rank()}, root) == {"rank": root}
    assert hvd.broadcast_object("x" * 1000 * hvd.rank(), root, name="text") == "x" * 1000 * root
    assert hvd.allgather_object(list(range(hvd.rank()))) == [list(range(rank)) for rank in range(hvd.size())]


def test_compression() -> None:
    for dtype in ("float32", "float64"):
        sent, context = hvd.Compression.fp16.compress(mine(dtype))
        assert np.dtype(sent.dtype) == np.float16
        assert_is(hvd.Compression.fp16.decompress(sent, context), array_of(hvd.rank(), dtype), dtype)
    whole = mine("int32")
    for kind in (hvd.Compression.none, hvd.Compression.fp16):
        assert kind.decompress(*kind.compress(whole)) is whole
