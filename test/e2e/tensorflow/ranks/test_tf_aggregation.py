"""Contract 03: tapes, legacy optimizers, groups, aggregation, local variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import _reduction
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from tf_world import node_names, slices

v1 = tf.compat.v1


def traces_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each graph that is made for gradients."""
    traces: list[int] = []
    real = _reduction.GradientReduction._reduce

    def counted(self: Any, *args: Any) -> Any:
        traces.append(1)
        return real(self, *args)

    monkeypatch.setattr(_reduction.GradientReduction, "_reduce", counted)
    return traces


def test_many_tapes_trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = traces_of(monkeypatch)
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]

    def step(**options: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0]) * variables[1]
        hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for _ in range(10):
        step(gradient_predivide_factor=3.0)
    assert len(traces) == 1
    for _ in range(3):
        step(gradient_predivide_factor=3.0, groups=1)
        step(gradient_predivide_factor=3.0, groups=[[variables[1]]])
    assert len(traces) == 3
    make = hvd._make_allreduce_grads_fn
    arguments: tuple[Any, ...] = ("a", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None, hvd.global_process_set)
    assert make(*arguments) is make(*arguments)
    assert make(*arguments) is not make("b", *arguments[1:])


def test_tapes_keep_what_they_wrap() -> None:
    watched, unwatched = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(watched)
        loss = watched * unwatched
    wrapped = hvd.DistributedGradientTape(tape)
    assert isinstance(wrapped, tf.GradientTape)
    for _ in range(2):  # persistent
        grads = wrapped.gradient(loss, [watched, unwatched])
        assert isinstance(grads, list)
        assert float(grads[0]) == 3.0
        assert grads[1] is None
    assert float(wrapped.gradient(loss, watched)) == 3.0
    assert float(wrapped.gradient(loss, {"a": watched, "b": [unwatched]})["a"]) == 3.0
    assert float(wrapped.gradient(loss, (watched,), tf.constant(2.0))[0]) == 6.0


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("traced", [False, True])
def test_generic_names_meet_from_any_scope(traced: bool) -> None:
    variable = tf.Variable(1.0)

    def step() -> Any:
        with tf.name_scope(f"rank{hvd.rank()}"):
            with tf.GradientTape() as tape:
                loss = variable * float(hvd.rank())
            return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, [variable], use_generic_names=True)[0]

    total = hvd.size() * (hvd.size() - 1) / 2
    assert float((tf.function(step) if traced else step)()) == total
    if traced:
        assert [name.rsplit("/")[-1] for name in node_names(step)] == ["grad_0"]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 7, "lists"])
def test_groups(traced: bool, groups: Any) -> None:
    """Of several types, and with gradients that are None."""
    variables = [tf.Variable(1.0), tf.Variable([2.0], dtype=tf.float64), tf.Variable(3.0), tf.Variable(4.0), tf.Variable(5.0)]
    wanted = [[variables[4], variables[0]], [variables[1]]] if groups == "lists" else groups

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = variables[0] * variables[2] * variables[4] + tf.cast(tf.reduce_sum(variables[1]), tf.float32)
        return hvd.DistributedGradientTape(tape, op=hvd.Sum, groups=wanted).gradient(loss, variables)

    grads = (tf.function(step) if traced else step)()
    assert grads[3] is None
    found = [float(tf.reduce_sum(grads[i])) for i in (0, 1, 2, 4)]
    assert found == [15.0 * hvd.size(), 1.0 * hvd.size(), 5.0 * hvd.size(), 3.0 * hvd.size()]


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")


@pytest.mark.usefixtures("elastic")
@pytest.mark.parametrize("mode", ["eager", "function", "graph"])
def test_elastic_graphs_ask_when_they_run(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = traces_of(monkeypatch)
    name = f"elastic_{mode}"
    reduce = hvd._make_allreduce_grads_fn(
        name, "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
    )
    rank, size = hvd.rank(), hvd.size()
    expected = np.zeros([10, 2], np.float32)
    expected[:size] = 1 / size

    def check(dense: Any, sparse: Any) -> None:
        np.testing.assert_allclose(dense, [(size - 1) / 2], rtol=1e-6)
        np.testing.assert_allclose(sparse, expected, rtol=1e-6)

    def run() -> Any:
        dense, sparse, nothing = reduce([tf.constant([float(rank)]), slices(1, rank), None])
        assert nothing is None
        return dense, tf.convert_to_tensor(sparse)

    if mode == "graph":
        with tf.Graph().as_default(), v1.Session() as session:
            check(*session.run(run()))
    elif mode == "function":
        check(*tf.function(run)())
    else:
        check(*run())
        check(*run())
    assert len(traces) == 1
    if mode == "function":
        graph = tf.function(run).get_concrete_function().graph
        types = {op.type for op in graph.get_operations()}
        assert {"HorovodSize", "HorovodProcessSetIncluded"} <= types
        assert "HorovodAllreduce" not in types  # it is in the branch


def test_without_elastic_the_choice_is_made_when_traced() -> None:
    def run() -> Any:
        with tf.GradientTape() as tape:
            x = tf.constant(1.0)
            tape.watch(x)
            loss = 2 * x
        return hvd.DistributedGradientTape(tape).gradient(loss, [x])[0]

    graph = tf.function(run).get_concrete_function().graph
    types = [op.type for op in graph.get_operations() if op.type.startswith("Horovod")]
    assert types == (["HorovodAllreduce"] if hvd.size() > 1 else [])


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("passes", [1, 2])
def test_local_variables_of_legacy_optimizers(scale: bool, passes: int) -> None:
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default(), v1.Session() as session:
        shared = v1.get_variable("shared", initializer=0.0)
        local = v1.get_variable("local", initializer=0.0)
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0),
            op=hvd.Sum,
            backward_passes_per_step=passes,
            scale_local_gradients=scale,
        )
        optimizer.register_local_var(local)
        train = optimizer.minimize((shared + local) * float(rank + 1))
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(passes):
            session.run(train)
        assert session.run(shared) == -passes * size * (size + 1) / 2
        np.testing.assert_allclose(session.run(local), -passes * (rank + 1) / (size if scale else 1), rtol=1e-6)


def test_local_variables_of_tapes() -> None:
    shared, local = tf.Variable(1.0), tf.Variable(1.0)
    for scale in (True, False):
        with tf.GradientTape() as tape:
            loss = (shared + local) * float(hvd.rank() + 1)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, scale_local_gradients=scale)
        tape.register_local_source(local)
        grads = tape.gradient(loss, [local, shared])
        assert float(grads[0]) == pytest.approx((hvd.rank() + 1) / (hvd.size() if scale else 1))
        assert float(grads[1]) == hvd.size() * (hvd.size() + 1) / 2
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers="dense")


@pytest.fixture
def graph() -> Iterator[Any]:
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_a_legacy_optimizer_delegates(graph: Any) -> None:
    variable = v1.get_variable("x", initializer=[1.0, 2.0])
    inner = v1.train.MomentumOptimizer(0.5, 0.9)
    optimizer = hvd.DistributedOptimizer(inner)
    assert isinstance(optimizer, v1.train.Optimizer)
    assert optimizer.get_name() == "DistributedMomentumOptimizer"
    assert hvd.DistributedOptimizer(inner, name="other").get_name() == "other"
    pairs = optimizer.compute_gradients(tf.reduce_sum(variable) * float(hvd.rank()), [variable])
    step = v1.train.get_or_create_global_step()
    train = optimizer.apply_gradients(pairs, global_step=step, name="train")
    graph.run(v1.global_variables_initializer())
    graph.run(train)
    mean = (hvd.size() - 1) / 2
    np.testing.assert_allclose(graph.run(variable), [1 - 0.5 * mean, 2 - 0.5 * mean], rtol=1e-6)
    assert graph.run(step) == 1
    assert optimizer.get_slot_names() == ["momentum"]
    np.testing.assert_allclose(graph.run(optimizer.get_slot(variable, "momentum")), [mean] * 2, rtol=1e-6)
    assert len(optimizer.variables()) == 1


def test_aggregation_in_graphs(graph: Any) -> None:
    """Sparse gradients made dense, a variable without a gradient, names and collections of the accumulators."""
    table, other = v1.get_variable("table", initializer=tf.zeros([3, 2])), v1.get_variable("other", initializer=0.0)
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), op=hvd.Sum, backward_passes_per_step=2, sparse_as_dense=True, name="opt"
    )
    pairs = optimizer.compute_gradients(tf.reduce_sum(tf.gather(table, [0])), [table, other])
    assert [grad is None for grad, _ in pairs] == [False, True]
    train = optimizer.apply_gradients(pairs)
    names = {one.name for one in v1.local_variables()}
    assert f"aggregation_variables_opt{hvd.rank()}/aggregation_counter:0" in names
    assert len(names) == 2
    assert len(v1.get_collection("aggregating_collection")) == 1
    assert all(not one.trainable for one in v1.local_variables())
    graph.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    seen = []
    for _ in range(4):
        graph.run(train)
        seen.append(float(graph.run(table)[0, 0]))
    assert seen == [0, -2 * hvd.size(), -2 * hvd.size(), -4 * hvd.size()]


def test_eager_aggregation_begins_anew_with_each_session_and_after_each_step() -> None:
    helper = LocalGradientAggregationHelperEager(2, lambda grads, variables: list(grads), False, False)

    def passed(value: float) -> float:
        (total,) = helper.compute_gradients([tf.constant(value)], [tf.Variable(0.0)])
        return float(total)

    assert passed(5.0) == 5.0
    helper.on_session_start()  # the other pass was to come in the session that has ended
    assert [passed(1.0), passed(2.0)] == [1.0, 3.0]
    assert [passed(np.inf), passed(1.0)] == [np.inf, np.inf]
    assert [passed(1.0), passed(2.0)] == [1.0, 3.0]


def test_aggregation_refuses_sparse_gradients_and_bad_numbers(graph: Any) -> None:
    table = v1.get_variable("table", initializer=tf.zeros([3, 2]))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.minimize(tf.reduce_sum(tf.gather(table, [0])))
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            hvd.LocalGradientAggregationHelper(wrong, None, False, False, 0, "", hvd.global_process_set)


def test_legacy_optimizers_work_eagerly_without_aggregation() -> None:
    variable = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), op=hvd.Sum)
    optimizer.minimize(lambda: variable * float(hvd.rank() + 1), var_list=[variable])
    assert float(variable) == pytest.approx(1 - 0.5 * hvd.size() * (hvd.size() + 1) / 2)
    with pytest.raises(ValueError, match="eager"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=2)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, ValueError, "predivide"),
        ({"groups": 0}, ValueError, "groups"),
        ({"groups": "all"}, ValueError, "groups"),
        ({"groups": -2}, ValueError, "groups"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], match: str) -> None:
    for make in (
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), **options),
        lambda: hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options),
        lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), **options),
    ):
        with pytest.raises(error, match=match):
            make()


def test_names_of_synchronized_layers_are_unique() -> None:
    first, second = hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()
    assert first.name.startswith("sync_batch_normalization")
    assert first.name != second.name
    for fused in (True, None):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=fused)
