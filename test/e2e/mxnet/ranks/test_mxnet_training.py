"""Parameters that all ranks have from one, and training that equals that of one process, in double precision."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import mxnet as mx
import numpy as np
import pytest

import horovod.mxnet as hvd
from mxnet_world import array_of, assert_is, meet, mine

ROWS, STEPS = 4, 5


def make_net(seed: int, deferred: bool = False) -> Any:
    """Of two layers; the same for the same seed."""
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(5, activation="tanh", in_units=0 if deferred else 3))
        net.add(mx.gluon.nn.Dense(2, in_units=0 if deferred else 5))
    net.cast("float64")
    mx.random.seed(seed)
    net.initialize(mx.init.Uniform(0.5), force_reinit=True)
    return net


def values(net: Any) -> list[Any]:
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def batch(step: int) -> tuple[Any, Any]:
    """Of all ranks together."""
    random = np.random.RandomState(step)
    rows = ROWS * hvd.size()
    return random.randn(rows, 3), random.randn(rows, 2)


def train(net: Any, trainer: Any, own: slice, rows: int) -> None:
    loss = mx.gluon.loss.L2Loss()
    for step in range(STEPS):
        x, y = (mx.nd.array(part[own], dtype="float64") for part in batch(step))
        with mx.autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(rows)


OPTIMIZER = ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01})


def trained_alone(seed: int) -> list[Any]:
    net = make_net(seed)
    trainer = mx.gluon.Trainer(net.collect_params(), *OPTIMIZER, kvstore=None)
    train(net, trainer, slice(None), ROWS * hvd.size())
    return values(net)


def own_rows() -> slice:
    return slice(ROWS * hvd.rank(), ROWS * (hvd.rank() + 1))


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_predivide_factor": 4.0}, {"num_groups": 2}, {"num_groups": 9, "prefix": "p"}],
    ids=["plain", "predivided", "groups", "more groups than gradients"],
)
@pytest.mark.parametrize("deferred", [False, True], ids=["shapes known", "deferred"])
def test_a_trainer_equals_one_process(options: dict[str, Any], deferred: bool) -> None:
    root = hvd.size() - 1
    net = make_net(hvd.rank(), deferred)
    hvd.broadcast_parameters(net.collect_params(), root)
    trainer = hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER, **options)
    if deferred:  # initialised, and so broadcast, by the first forward
        with mx.autograd.record():
            net(mx.nd.zeros((1, 3), dtype="float64"))
        start = hvd.allgather_object([one.tolist() for one in values(net)])
        assert all(one == start[root] for one in start)
        reference = make_net(root)
        for parameter, value in zip(reference.collect_params().values(), start[root], strict=True):
            parameter.set_data(mx.nd.array(value, dtype="float64"))
        alone = mx.gluon.Trainer(reference.collect_params(), *OPTIMIZER, kvstore=None)
        train(reference, alone, slice(None), ROWS * hvd.size())
        expected = values(reference)
    else:
        expected = trained_alone(root)
    train(net, trainer, own_rows(), ROWS)
    for one, other in zip(values(net), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_a_trainer_with_compression_comes_close() -> None:
    net = make_net(1)
    trainer = hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER, compression=hvd.Compression.fp16)
    train(net, trainer, own_rows(), ROWS)
    for one, other in zip(values(net), trained_alone(1), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.02, atol=2e-3)
    assert all(np.dtype(parameter.grad().dtype) == np.float64 for parameter in net.collect_params().values())


@pytest.mark.parametrize("num_groups", [0, 2])
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_an_optimizer_equals_one_process(num_groups: int, factor: float) -> None:
    """An Updater gives it one gradient, or with aggregated updates a list of them."""
    net, name, settings = make_net(3), *OPTIMIZER
    parameters = list(net.collect_params().values())
    inner = mx.optimizer.create(name, **settings, rescale_grad=1.0 / ROWS)
    optimizer = hvd.DistributedOptimizer(inner, gradient_predivide_factor=factor, num_groups=num_groups)
    assert optimizer.momentum == 0.9
    assert optimizer.learning_rate == 0.1
    optimizer.aggregate_num = 4 if num_groups else 0
    assert inner.aggregate_num == optimizer.aggregate_num
    updater = mx.optimizer.get_updater(optimizer)
    loss = mx.gluon.loss.L2Loss()
    for step in range(STEPS):
        x, y = (mx.nd.array(part[own_rows()], dtype="float64") for part in batch(step))
        with mx.autograd.record():
            value = loss(net(x), y)
        value.backward()
        grads, weights = [p.grad() for p in parameters], [p.data() for p in parameters]
        updater(list(range(len(parameters))), grads, weights)
    for one, other in zip(values(net), trained_alone(3), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_lists_without_groups_and_single_gradients() -> None:
    for index in (7, [7, 8], (7, 8)):
        weights = [mx.nd.zeros(2, dtype="float64") for _ in range(2)]
        grads = [mx.nd.ones(2, dtype="float64") * (hvd.rank() + 1) for _ in range(2)]
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
        if index == 7:
            optimizer.update(7, weights[0], grads[0], None)
            weights = weights[:1]
        else:
            optimizer.update(index, weights, grads, [None, None])
        for weight in weights:
            np.testing.assert_allclose(weight.asnumpy(), -(hvd.size() + 1) / 2, rtol=1e-6)  # rescale_grad is float32


def test_where_gradients_are_averaged_is_seen_in_rescale_grad() -> None:
    if int(hvd.nccl_built()) >= 21000:
        pytest.skip("this test is for machines without NCCL")
    expected = 6.0 / hvd.size() if hvd.size() > 1 else 3.0
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(rescale_grad=3.0), gradient_predivide_factor=2.0)
    assert optimizer.rescale_grad == pytest.approx(expected)
    optimizer.rescale_grad = 5.0
    assert optimizer._optimizer.rescale_grad == 5.0
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert copied.rescale_grad == 5.0
        assert copied._optimizer is not optimizer._optimizer
    net = make_net(0)
    for parameter in net.collect_params().values():
        parameter.data()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", gradient_predivide_factor=2.0)
    assert trainer._scale == pytest.approx(2.0 / hvd.size() if hvd.size() > 1 else 1.0)


def test_gradients_that_the_library_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with NCCL from 2.10 on."""
    monkeypatch.setattr(hvd.mpi_ops._basics, "nccl_built", lambda: 22000)
    net = make_net(3)
    trainer = hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER, gradient_predivide_factor=2.0)
    assert trainer._scale == 1.0
    train(net, trainer, own_rows(), ROWS)
    for one, other in zip(values(net), trained_alone(3), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)  # the other's rescale_grad is rounded to float32
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), gradient_predivide_factor=2.0)
    assert optimizer.rescale_grad == 1.0
    weight = mx.nd.zeros(1)
    optimizer.update(0, weight, mx.nd.array([hvd.rank() + 1.0]), None)
    assert weight.asscalar() == pytest.approx(-(hvd.size() + 1) / 2)


def fitted(optimizer: Any, own: slice, is_shared: bool) -> list[Any]:
    """The parameters of a Module that these rows have trained."""
    layer = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="layer")
    symbol = mx.sym.LinearRegressionOutput(layer, mx.sym.var("label"), name="out")
    x, y = (part[own] for part in batch(0))
    rows = mx.io.NDArrayIter(x, y, batch_size=len(x), label_name="label")
    module = mx.mod.Module(symbol, data_names=["data"], label_names=["label"])
    module.bind(rows.provide_data, rows.provide_label)
    mx.random.seed(hvd.rank() if is_shared else 0)
    module.init_params(mx.init.Uniform(0.5))
    if is_shared:
        arguments, states = module.get_params()
        hvd.broadcast_parameters(arguments)
        module.set_params(arguments, states)
    module.fit(rows, num_epoch=STEPS, kvstore=None, optimizer=optimizer, eval_metric="mse")
    return [array.asnumpy() for _, array in sorted(module.get_params()[0].items())]


def test_a_module_equals_one_process() -> None:
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    inner = mx.optimizer.SGD(**settings, rescale_grad=1.0 / ROWS)
    made = fitted(hvd.DistributedOptimizer(inner), own_rows(), True)
    alone = mx.optimizer.SGD(**settings, rescale_grad=1.0 / (ROWS * hvd.size()))
    for one, other in zip(made, fitted(alone, slice(None), False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_trainer_unwraps_an_optimizer_and_averages_once() -> None:
    net = make_net(2)
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create(OPTIMIZER[0], **OPTIMIZER[1]))
    with pytest.warns(UserWarning, match="unwrapped it"):
        trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
    train(net, trainer, own_rows(), ROWS)
    for one, other in zip(values(net), trained_alone(2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_trainers_of_one_wrapped_optimizer_have_one_factor() -> None:
    net, factor = make_net(2), 1.0 / hvd.size()
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD())
    with pytest.warns(UserWarning, match="unwrapped it"), pytest.raises(ValueError, match="Parameters"):
        hvd.DistributedTrainer([1.0], optimizer)
    assert optimizer.rescale_grad == pytest.approx(factor)  # as before
    for _ in range(2):
        with pytest.warns(UserWarning, match="unwrapped it"):
            trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
        assert optimizer.rescale_grad == 1.0
        assert trainer._scale == pytest.approx(factor)


def test_parameters_of_a_list_have_the_same_order_on_all_ranks() -> None:
    net = make_net(4)
    parameters = list(net.collect_params().values())
    trainer = hvd.DistributedTrainer(parameters if hvd.rank() == 0 else parameters[::-1], *OPTIMIZER)
    train(net, trainer, own_rows(), ROWS)
    for one, other in zip(values(net), trained_alone(4), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_gradients_that_are_not_wanted_are_not_reduced() -> None:
    net = make_net(5)
    net.collect_params("net_dense0_.*").setattr("grad_req", "null")
    frozen = values(net)[:2]
    train(net, hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER, num_groups=1), own_rows(), ROWS)
    for one, other in zip(values(net)[:2], frozen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_groups_of_several_types() -> None:
    parameters = []
    for number, dtype in enumerate(("float32", "float64", "float32")):
        parameter = mx.gluon.Parameter(f"p{number}", shape=(2,), dtype=dtype, init=mx.init.Zero())
        parameter.initialize()
        parameter.grad()[:] = hvd.rank() + 1
        parameters.append(parameter)
    trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 1.0}, num_groups=1)
    trainer.step(1, ignore_stale_grad=True)
    trainer.allreduce_grads()
    total = sum(range(1, hvd.size() + 1))
    for parameter in parameters:
        grad = parameter.grad().asnumpy()
        np.testing.assert_allclose(grad, total * hvd.size() if hvd.size() > 1 else 1.0)


@pytest.mark.usefixtures("several_ranks")
def test_ranks_outside_of_the_set_train_alone() -> None:
    first = hvd.add_process_set([0])
    pair = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.global_process_set
    net = make_net(6)
    trainer = hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER, process_set=first)
    train(net, trainer, slice(0, ROWS), ROWS)
    mean = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=pair)
    weight = mx.nd.zeros(1, dtype="float64")
    mean.update(0, weight, mx.nd.array([hvd.rank() + 1.0], dtype="float64"), None)
    assert weight.asscalar() == (-1.5 if hvd.rank() < 2 else -(hvd.rank() + 1.0))
    everybodys = hvd.allgather_object([one.tolist() for one in values(net)])
    assert all(one == everybodys[0] for one in everybodys)  # the same rows, alone
    for each in (first, pair):
        hvd.remove_process_set(each)  # False for the global set


def test_parameters_become_the_roots() -> None:
    root = hvd.size() - 1
    arrays = {f"w{number}": mine("float32", (number + 1, 2)) for number in range(5)}
    hvd.broadcast_parameters(arrays, root_rank=root, prefix="first.")
    hvd.broadcast_parameters({"w0": mine("float64")}, prefix="second.")
    for number in range(5):
        assert_is(arrays[f"w{number}"], array_of(root, "float32", (number + 1, 2)))
    net = make_net(hvd.rank())
    hvd.broadcast_parameters(net.collect_params(), root)
    for one, other in zip(values(net), values(make_net(root)), strict=True):
        np.testing.assert_array_equal(one, other)
    meet()


def test_a_deferred_parameter_is_broadcast_each_time_that_it_is_initialised() -> None:
    net = make_net(hvd.rank(), deferred=True)
    hvd.broadcast_parameters(net.collect_params())
    net(mx.nd.zeros((1, 3), dtype="float64")).wait_to_read()
    first = [one.tolist() for one in values(net)]
    assert hvd.allgather_object(first)[0] == first
    mx.random.seed(99 + hvd.rank())
    net.initialize(mx.init.Uniform(0.5), force_reinit=True)
    net(mx.nd.zeros((1, 3), dtype="float64")).wait_to_read()
    second = [one.tolist() for one in values(net)]
    assert hvd.allgather_object(second)[0] == second != first


def test_a_deferred_parameter_that_is_broadcast_twice_and_has_two_names() -> None:
    net, root = make_net(hvd.rank(), deferred=True), hvd.size() - 1
    parameters = dict(net.collect_params().items())
    one = next(iter(parameters.values()))
    for _ in range(2):
        hvd.broadcast_parameters({**parameters, "tied": one}, root)
    net(mx.nd.ones((1, 3), dtype="float64") * (hvd.rank() + 1)).wait_to_read()
    made = hvd.allgather_object([value.tolist() for value in values(net)])
    assert all(each == made[root] for each in made)


@pytest.mark.usefixtures("several_ranks")
def test_parameters_after_an_inference() -> None:
    """oneDNN has changed the layout of a convolution's weights."""
    net = mx.gluon.nn.Conv2D(32, 3, in_channels=16, weight_initializer=mx.init.Constant(float(hvd.rank())))
    net.initialize()
    net(mx.nd.ones((2, 16, 8, 8))).wait_to_read()
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    assert_is(net.weight.data(), np.ones((32, 16, 3, 3)))
    assert_is(net(mx.nd.ones((2, 16, 8, 8))), np.full((2, 32, 6, 6), 144.0))
