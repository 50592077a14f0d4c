"""The collectives in eager mode, in tf.function and in a TF1 graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import MODES, MOVABLE, REDUCIBLE, SCATTERABLE, SHAPES, array, eagerly, mine, of_all, of_rank, same, total

Mode = Callable[[Callable[[], Any]], Any]
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)


@every_mode
@pytest.mark.parametrize("dtype", REDUCIBLE, ids=lambda dtype: dtype.name)
def test_a_sum_is_that_of_all_ranks(mode: Mode, dtype: tf.DType) -> None:
    for shape in SHAPES:
        expected = total(of_all(shape, dtype))
        inputs = array(mine(shape, dtype))
        same(mode(lambda inputs=inputs: hvd.allreduce(tf.constant(inputs), op=hvd.Sum)), expected)


@every_mode
def test_an_average_is_the_default_and_the_input_stays(mode: Mode) -> None:
    given = array(mine((4, 3), tf.float64))
    before = given.copy()
    result = mode(lambda: hvd.allreduce(tf.constant(given)))
    np.testing.assert_allclose(result, total(of_all((4, 3), tf.float64)) / hvd.size())
    same(given, before)


def test_min_max_product_and_factors() -> None:
    given, everybodys = mine((9,), tf.int64), np.stack([array(one) for one in of_all((9,), tf.int64)])
    same(hvd.allreduce(given, op=hvd.Min), everybodys.min(0))
    same(hvd.allreduce(given, op=hvd.Max), everybodys.max(0))
    same(hvd.allreduce(given, op=hvd.Product), everybodys.prod(0))
    floats = tf.cast(given, tf.float32)
    scaled = hvd.allreduce(floats, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(scaled, (everybodys.sum(0) * 2).astype(np.float32))


def test_fp16_compression_gives_the_type_back() -> None:
    result = hvd.allreduce(mine((7,), tf.float32), op=hvd.Sum, compression=hvd.Compression.fp16)
    same(result, total(of_all((7,), tf.float32)))


@every_mode
def test_groups_keep_their_order(mode: Mode) -> None:
    shapes = [(5,), (2, 3), (), (0,)]
    inputs = [array(mine(shape, tf.float32)) for shape in shapes]
    results = mode(lambda: hvd.grouped_allreduce([tf.constant(one) for one in inputs], op=hvd.Sum))
    for shape, result in zip(shapes, results, strict=True):
        same(result, total(of_all(shape, tf.float32)))
    assert hvd.grouped_allreduce([]) == []


@every_mode
@pytest.mark.parametrize("dtype", MOVABLE, ids=lambda dtype: dtype.name)
def test_rows_of_all_ranks_are_gathered_in_order(mode: Mode, dtype: tf.DType) -> None:
    def rows(rank: int) -> Any:
        return array(of_rank(rank, (rank, 3), dtype))

    expected = np.concatenate([rows(rank) for rank in range(hvd.size())])
    given = rows(hvd.rank())
    same(mode(lambda: hvd.allgather(tf.constant(given, dtype=dtype))), expected)


def test_groups_of_allgathers() -> None:
    results = hvd.grouped_allgather([tf.fill([hvd.rank() + 1, 2], i) for i in range(3)])
    rows = hvd.size() * (hvd.size() + 1) // 2
    for i, result in enumerate(results):
        same(result, np.full([rows, 2], i, np.int32))


@every_mode
@pytest.mark.parametrize("dtype", MOVABLE, ids=lambda dtype: dtype.name)
def test_each_rank_can_be_the_root_of_a_broadcast(mode: Mode, dtype: tf.DType) -> None:
    given = array(mine((4, 2), dtype))
    for root in range(hvd.size()):
        same(mode(lambda root=root: hvd.broadcast(tf.constant(given), root)), of_rank(root, (4, 2), dtype))


@every_mode
def test_alltoall_with_splits_and_without(mode: Mode) -> None:
    rank, size = hvd.rank(), hvd.size()
    splits = [rank + peer for peer in range(size)]
    rows = np.concatenate([np.full([n, 2], 10 * rank + peer, np.int32) for peer, n in enumerate(splits)])
    output, received = mode(lambda: hvd.alltoall(tf.constant(rows), splits=splits))
    same(received, np.array([peer + rank for peer in range(size)], np.int32))
    same(output, np.concatenate([np.full([peer + rank, 2], 10 * peer + rank, np.int32) for peer in range(size)]))
    even = mode(lambda: hvd.alltoall(tf.repeat(tf.range(size), 2)))
    same(even, np.full([2 * size], rank, np.int32))


@every_mode
@pytest.mark.parametrize("dtype", SCATTERABLE, ids=lambda dtype: dtype.name)
def test_reducescatter_leaves_each_rank_its_rows(mode: Mode, dtype: tf.DType) -> None:
    rank, size = hvd.rank(), hvd.size()
    shape = (2 * size + 1, 3)
    summed = total(of_all(shape, dtype))
    given = array(mine(shape, dtype))
    result = mode(lambda: hvd.reducescatter(tf.constant(given), op=hvd.Sum))
    start = 2 * rank + min(rank, 1)
    same(result, summed[start : start + 2 + (rank < 1)])


@every_mode
def test_sparse_gradients_are_put_together(mode: Mode) -> None:
    rank, size = hvd.rank(), hvd.size()

    def run() -> Any:
        slices = tf.IndexedSlices(tf.ones([rank + 1, 2]), tf.range(rank + 1), dense_shape=tf.constant([9, 2]))
        return tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum))

    expected = np.zeros([9, 2], np.float32)
    for peer in range(size):
        expected[: peer + 1] += 1
    same(mode(run), expected)


@every_mode
def test_queries_run_in_the_graph(mode: Mode) -> None:
    found = mode(lambda: [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()])
    assert [int(one) for one in found] == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
    assert int(mode(hvd.process_set_included_op)) == 1
    assert int(mode(lambda: hvd.process_set_included_op(77))) < 0


def test_join_lets_the_others_go_on() -> None:
    rank, size = hvd.rank(), hvd.size()
    for step in range(rank):  # rank 0 joins at once, rank 1 after one step, ...
        found = float(hvd.allreduce(tf.constant([1.0]), op=hvd.Sum)[0])
        assert size - 1 - step <= found <= size  # those that have joined give zeros
    if rank == size - 1 > 0:
        for call in (hvd.allgather, lambda one: hvd.broadcast(one, rank)):
            with pytest.raises(tf.errors.FailedPreconditionError, match="has joined"):
                call(tf.constant([1.0]))
    last = int(hvd.join())
    assert hvd.allgather_object(rank) == list(range(size))  # unnamed calls match again
    assert hvd.broadcast_object(rank, size - 1) == size - 1
    assert 0 <= last < size
    same(hvd.allreduce(tf.constant([last]), op=hvd.Max), np.array([last], np.int32))


def test_static_shapes_are_known() -> None:
    shapes: dict[str, Any] = {}

    def run(x: Any) -> Any:
        shapes["allreduce"] = hvd.allreduce(x).shape
        shapes["allgather"] = hvd.allgather(x).shape
        shapes["alltoall"] = hvd.alltoall(x).shape
        return x

    tf.function(run).get_concrete_function(tf.TensorSpec([4, 3]))
    assert shapes["allreduce"].as_list() == [4, 3]
    assert shapes["allgather"].as_list() == [None, 3]
    assert shapes["alltoall"].as_list() == [None, 3]


def test_eager_and_function_share_one_session_with_torch() -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd_torch

    assert hvd_torch.is_initialized()
    assert hvd_torch.rank() == hvd.rank()
    assert hvd_torch.allreduce(torch.ones(2), op=hvd_torch.Sum).tolist() == [hvd.size()] * 2
    same(eagerly(lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum)), np.full([2], hvd.size(), np.float32))


def test_adasum_of_equal_and_of_orthogonal_gradients() -> None:
    """Equal ones are averaged, orthogonal ones are added."""
    rank, size = hvd.rank(), hvd.size()
    np.testing.assert_allclose(hvd.allreduce(tf.ones([4]), op=hvd.Adasum), np.ones([4]), rtol=1e-6)
    own = np.eye(size, dtype=np.float32)[rank]
    np.testing.assert_allclose(hvd.allreduce(tf.constant(own), op=hvd.Adasum), np.ones([size]), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="global"):
        hvd.allreduce(tf.ones([2]), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
