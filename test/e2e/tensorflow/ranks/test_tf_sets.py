"""TensorFlow on process sets: even ranks and odd ranks work at the same time, each among themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_tfk
from horovod._common import objects
from horovod.common.exceptions import HorovodInternalError
from tf_world import MODES, array, assert_usable, eagerly, in_function, of_rank, same, total

pytestmark = pytest.mark.usefixtures("several_ranks")
Mode = Callable[[Callable[[], Any]], Any]
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


@dataclass
class Sets:
    """This rank's set and the one that it is no member of."""

    mine: hvd.ProcessSet
    other: hvd.ProcessSet

    @property
    def ranks(self) -> list[int]:
        return list(self.mine.ranks or [])

    @property
    def size(self) -> int:
        return len(self.ranks)

    def inputs(self, shape: tuple[int, ...]) -> list[Any]:
        return [array(of_rank(rank, shape, tf.float32)) for rank in self.ranks]

    def own(self, shape: tuple[int, ...], dtype: tf.DType = tf.float32) -> Any:
        return array(of_rank(hvd.rank(), shape, dtype))


def start_again(process_sets: Sequence[hvd.ProcessSet] | str | None = None) -> None:
    hvd.allreduce(tf.zeros([1]))
    hvd.shutdown()
    hvd.init(process_sets=process_sets)


@pytest.fixture(params=["static", "dynamic"])
def sets(request: pytest.FixtureRequest) -> Iterator[Sets]:
    """Both sets, made by init() or by add_process_set(). A test that failed waits for nobody."""
    before = os.environ.pop(DYNAMIC, None)
    evens, odds = hvd.ProcessSet(range(0, hvd.size(), 2)), hvd.ProcessSet(range(1, hvd.size(), 2))
    if request.param == "static":
        start_again([evens, odds])
    else:
        start_again("dynamic")
        for one in (evens, odds):
            hvd.add_process_set(one)
    yield Sets(evens, odds) if hvd.rank() % 2 == 0 else Sets(odds, evens)
    os.environ.pop(DYNAMIC, None)
    if before is not None:
        os.environ[DYNAMIC] = before
    if not request.session.testsfailed:
        start_again()


@every_mode
def test_reductions(sets: Sets, mode: Mode) -> None:
    given, expected = sets.own((5, 2)), total(sets.inputs((5, 2)))
    same(mode(lambda: hvd.allreduce(tf.constant(given), op=hvd.Sum, process_set=sets.mine)), expected)
    mean = mode(lambda: hvd.allreduce(tf.constant(given), process_set=sets.mine))
    np.testing.assert_allclose(mean, expected / sets.size, rtol=1e-6)
    grouped = mode(
        lambda: hvd.grouped_allreduce(
            [tf.constant(given), 2 * tf.constant(given)], op=hvd.Sum, process_set=sets.mine
        )
    )
    same(grouped[0], expected)
    same(grouped[1], 2 * expected)


@every_mode
def test_rows_move_among_the_members(sets: Sets, mode: Mode) -> None:
    place = sets.ranks.index(hvd.rank())

    def rows(rank: int) -> Any:
        return np.full([rank + 1, 2], rank, np.int32)

    everything = np.concatenate([rows(rank) for rank in sets.ranks])
    own = rows(hvd.rank())
    same(mode(lambda: hvd.allgather(tf.constant(own), process_set=sets.mine)), everything)
    for one in mode(lambda: hvd.grouped_allgather([tf.constant(own), tf.constant(own)], process_set=sets.mine)):
        same(one, everything)
    root = sets.ranks[-1]  # a rank of the job, not of the set
    same(mode(lambda: hvd.broadcast(tf.fill([3], hvd.rank()), root, process_set=sets.mine)), np.full([3], root, np.int32))
    sent = np.repeat(np.arange(sets.size, dtype=np.int32) + 10 * place, 2)
    output, received = mode(lambda: hvd.alltoall(tf.constant(sent), [2] * sets.size, process_set=sets.mine))
    same(output, np.repeat(10 * np.arange(sets.size, dtype=np.int32) + place, 2))
    same(received, np.full([sets.size], 2, np.int32))


@every_mode
def test_reducescatter(sets: Sets, mode: Mode) -> None:
    shape = (2 * sets.size, 3)
    place = sets.ranks.index(hvd.rank())
    given, expected = sets.own(shape), total(sets.inputs(shape))[2 * place : 2 * place + 2]
    same(mode(lambda: hvd.reducescatter(tf.constant(given), op=hvd.Sum, process_set=sets.mine)), expected)
    grouped = mode(lambda: hvd.grouped_reducescatter([tf.constant(given)] * 2, op=hvd.Sum, process_set=sets.mine))
    for one in grouped:
        same(one, expected)


def test_sparse_gradients_and_compression(sets: Sets) -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), dense_shape=tf.constant([hvd.size(), 2]))
    expected = np.zeros([hvd.size(), 2], np.float32)
    expected[sets.ranks] = 1 / sets.size
    same(tf.convert_to_tensor(hvd.allreduce(slices, process_set=sets.mine)), expected)
    given = sets.own((4,))
    result = hvd.allreduce(
        tf.constant(given), op=hvd.Sum, compression=hvd.Compression.fp16, process_set=sets.mine
    )
    same(result, total(sets.inputs((4,))))


def test_queries(sets: Sets) -> None:
    mine, other = sets.mine.process_set_id, sets.other.process_set_id

    def run() -> list[Any]:
        return [
            hvd.size_op(mine),
            hvd.size_op(other),
            hvd.process_set_included_op(mine),
            hvd.process_set_included_op(other),
        ]

    for mode in MODES:
        assert [int(one) for one in mode(run)] == [sets.size, hvd.size() - sets.size, 1, 0]


def gradient(run: Callable[[Any], Any], given: Any, weight: float) -> Any:
    def once() -> Any:
        x = tf.constant(given)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(run(x)) * weight
        return tape.gradient(loss, x)

    eager = eagerly(once)
    same(in_function(once), eager)
    return eager


def test_gradients_stay_in_the_set(sets: Sets) -> None:
    weight = float(hvd.rank() + 1)
    weights = [float(rank + 1) for rank in sets.ranks]
    place = sets.ranks.index(hvd.rank())
    common: dict[str, Any] = {"process_set": sets.mine}
    ones = np.ones([sets.size, 2], np.float32)

    summed = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, **common), ones, weight)
    np.testing.assert_allclose(summed, ones * sum(weights))
    grouped = gradient(lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum, **common)[0], ones, weight)
    np.testing.assert_allclose(grouped, ones * sum(weights))
    gathered = gradient(lambda x: hvd.allgather(x, **common), ones, weight)
    np.testing.assert_allclose(gathered, ones * sum(weights) / sets.size, rtol=1e-6)
    cast = gradient(lambda x: hvd.broadcast(x, sets.ranks[0], **common), ones, weight)
    np.testing.assert_allclose(cast, ones * (sum(weights) / sets.size if place == 0 else 0), rtol=1e-6)
    sent = gradient(lambda x: hvd.alltoall(x, [1] * sets.size, **common)[0], ones, weight)
    np.testing.assert_allclose(sent, ones * np.array(weights)[:, None])
    scattered = gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum, **common), ones, weight)
    np.testing.assert_allclose(scattered, ones * sets.size * np.array(weights)[:, None])


def test_objects_and_variables(sets: Sets) -> None:
    root = sets.ranks[-1]
    assert hvd.broadcast_object({"rank": hvd.rank()}, root, process_set=sets.mine) == {"rank": root}
    assert hvd.allgather_object("x" * hvd.rank(), process_set=sets.mine) == ["x" * rank for rank in sets.ranks]
    for inplace in (False, True):
        variables = [tf.Variable([float(hvd.rank())]), tf.Variable([hvd.rank()])]
        hvd.broadcast_variables(variables, root, process_set=sets.mine, inplace=inplace)
        assert [one.numpy()[0] for one in variables] == [root, root]
    values = hvd.broadcast_([tf.Variable([hvd.rank()])], root, process_set=sets.mine)
    assert values[0].numpy().tolist() == [root]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert hvd.broadcast_object(hvd.rank(), root, session, process_set=sets.mine) == root
        assert hvd.broadcast_object_fn(root, session, process_set=sets.mine)([hvd.rank()]) == [root]
        assert hvd.allgather_object(hvd.rank(), session, process_set=sets.mine) == sets.ranks


def test_an_object_whose_seal_is_wrong_is_not_unpickled() -> None:
    """As somebody on the path would change what rank 0 sends."""
    if hvd.rank() == 0:
        for payload in (b"cos\nabort\n(tR.", bytes(objects.dump("x", "another purpose"))):
            hvd.broadcast(np.array([len(payload)], dtype=np.int64), 0, name="sealed.sz")
            hvd.broadcast(np.frombuffer(payload, dtype=np.uint8), 0, name="sealed.t")
    else:
        for _ in range(2):
            with pytest.raises(HorovodInternalError, match=r"from rank 0 .*seal"):
                hvd.broadcast_object(None, 0, name="sealed")


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"gradient_predivide_factor": 2.0}], ids=str)
def test_tapes_reduce_among_members_and_leave_others_alone(sets: Sets, traced: bool, options: dict[str, Any]) -> None:
    variable = tf.Variable([1.0, 2.0])

    def step(process_set: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * float(hvd.rank() + 1)
        tape = hvd.DistributedGradientTape(tape, process_set=process_set, **options)
        return tape.gradient(loss, [variable])[0]

    run = tf.function(step) if traced else step
    mean = sum(rank + 1 for rank in sets.ranks) / sets.size
    np.testing.assert_allclose(run(sets.mine), [mean] * 2, rtol=1e-6)
    same(run(sets.other), np.full([2], hvd.rank() + 1, np.float32))


def test_keras_optimizers(sets: Sets) -> None:
    for process_set, expected in (
        (sets.mine, sum(rank + 1 for rank in sets.ranks) / sets.size),
        (sets.other, hvd.rank() + 1),
    ):
        variable = tf.Variable([0.0])
        optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), process_set=process_set)
        optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), variable)])
        np.testing.assert_allclose(variable.numpy(), [-expected], rtol=1e-6)


@pytest.mark.parametrize("passes", [1, 2])
def test_legacy_optimizers(sets: Sets, passes: int) -> None:
    for process_set, expected in (
        (sets.mine, sum(rank + 1 for rank in sets.ranks) / sets.size),
        (sets.other, hvd.rank() + 1),
    ):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.get_variable("x", initializer=tf.constant([0.0]))
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(1.0),
                process_set=process_set,
                backward_passes_per_step=passes,
                average_aggregated_gradients=True,
            )
            train = optimizer.minimize(tf.reduce_sum(variable) * float(hvd.rank() + 1))
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            for _ in range(passes):
                session.run(train)
            np.testing.assert_allclose(session.run(variable), [-expected], rtol=1e-6)


def test_synchronized_batch_norm_takes_all_ranks_beside_sets(sets: Sets) -> None:
    """The layer has no process set; sets that exist do not change it."""
    hvd.allreduce(tf.ones([1]), process_set=sets.mine)
    given = np.full([4, 1], hvd.rank(), np.float32)
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer(given, training=True)
    np.testing.assert_allclose(layer.moving_mean.numpy(), [(hvd.size() - 1) / 2], rtol=1e-6)


def test_non_members_and_unknown_sets_are_refused(sets: Sets) -> None:
    calls = (
        lambda one: hvd.allreduce(tf.ones([2]), process_set=one),
        lambda one: hvd.grouped_allreduce([tf.ones([2])], process_set=one),
        lambda one: hvd.allgather(tf.ones([2]), process_set=one),
        lambda one: hvd.broadcast(tf.ones([2]), (one.ranks or [0])[0], process_set=one),
        lambda one: hvd.alltoall(tf.ones([2 * hvd.size()]), process_set=one),
        lambda one: hvd.reducescatter(tf.ones([4]), process_set=one),
    )
    unknown = hvd.ProcessSet(list(sets.mine.ranks or []))
    unknown.process_set_id = 99
    for call in calls:
        for run in (call, lambda one, call=call: tf.function(lambda: call(one))()):
            with pytest.raises(tf.errors.InvalidArgumentError, match="is not a member"):
                run(sets.other)
            with pytest.raises(tf.errors.InvalidArgumentError, match="99"):
                run(unknown)
            with pytest.raises(ValueError, match="not registered"):
                run(hvd.ProcessSet([0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="99"):
        hvd.size_op(99)
    with pytest.raises(tf.errors.InvalidArgumentError, match="root"):
        hvd.broadcast(tf.ones([2]), (sets.other.ranks or [])[0], process_set=sets.mine)
    assert_usable()


def test_adasum_wants_all_ranks(sets: Sets) -> None:
    with pytest.raises(NotImplementedError, match="global"):
        hvd.allreduce(tf.ones([2]), op=hvd.Adasum, process_set=sets.mine)
    with pytest.raises(NotImplementedError, match="global"):
        hvd.grouped_allreduce([tf.ones([2])], op=hvd.Adasum, process_set=sets.mine)


def test_a_graph_made_before_a_set_was_removed_says_so() -> None:
    before = os.environ.pop(DYNAMIC, None)
    start_again("dynamic")
    one = hvd.add_process_set([0])
    function = tf.function(lambda: hvd.allreduce(tf.ones([1]), process_set=one)).get_concrete_function()
    if one.included():
        function()
    hvd.remove_process_set(one)
    with pytest.raises(tf.errors.InvalidArgumentError, match="process set 1"):
        function()
    again = hvd.add_process_set([1])
    assert int(hvd.size_op(again.process_set_id)) == 1
    os.environ.pop(DYNAMIC, None)
    if before is not None:
        os.environ[DYNAMIC] = before
    start_again()
