"""Parameters and objects that all ranks have from one, and sessions that begin anew."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import horovod.jax as hvd
from documented import undocumented
from jax_world import array_of, assert_is, assert_usable, everybodys, mine


def test_parameters_become_the_roots() -> None:
    root, rank = hvd.size() - 1, hvd.rank()
    params = {"kernel": mine(), "half": [mine("bfloat16", (3,)), mine("bool", (2,))], "none": None}
    state = optax.adam(0.1).init({"kernel": mine()})
    numbers = {"step": rank, "rate": rank / 2, "numpy": array_of(rank), "scalar": np.float32(rank)}
    params, state, numbers, key = hvd.broadcast_parameters((params, state, numbers, jax.random.key(rank)), root)
    assert_is(params["kernel"], array_of(root))
    assert_is(params["half"][0], array_of(root, "bfloat16", (3,)).astype(np.float64), "bfloat16")
    assert_is(params["half"][1], array_of(root, "bool", (2,)), "bool")
    assert params["none"] is None
    assert_is(state[0].mu["kernel"], np.zeros((4, 3)))
    assert (numbers["step"], type(numbers["step"])) == (root, int)
    assert numbers["rate"] == root / 2
    assert isinstance(numbers["numpy"], np.ndarray)
    np.testing.assert_array_equal(numbers["numpy"], array_of(root))
    assert (numbers["scalar"], type(numbers["scalar"])) == (root, np.float32)
    assert jax.random.uniform(key) == jax.random.uniform(jax.random.key(root))


def test_help_says_what_arguments_are() -> None:
    assert undocumented(hvd, hvd.elastic) == []


def test_objects() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast_object({"rank": hvd.rank()}, root) == {"rank": root}
    assert hvd.broadcast_object("x" * 1000 * hvd.rank(), root, name="text") == "x" * 1000 * root
    assert hvd.allgather_object(list(range(hvd.rank()))) == [list(range(rank)) for rank in range(hvd.size())]


def test_the_next_session_traces_anew() -> None:
    """A program holds automatic names, which a new session counts from 1."""
    traced: list[int] = []

    @jax.jit
    def step(x: Any) -> Any:
        traced.append(1)
        return hvd.allreduce(x, op=hvd.Sum)

    for _ in range(2):
        for _ in range(3):
            assert_is(step(mine()), sum(everybodys()))
        hvd.shutdown()
        hvd.init()
    assert len(traced) == 2


def test_the_result_for_a_number_has_the_type_of_an_array() -> None:
    """At once, compiled, and under transformations: what is computed with it has one type."""
    half = jax.numpy.ones(2, "bfloat16")

    def call(x: Any) -> Any:
        return hvd.allreduce(2.0, name="number") * x

    for way in (lambda call: call, jax.jit, jax.vmap, jax.checkpoint, lambda call: jax.jit(jax.vmap(call))):
        assert way(call)(half).dtype == "float64"
    looped = jax.jit(lambda: jax.lax.fori_loop(0, 2, lambda _, x: hvd.allreduce(x, name="looped"), 1.0))
    assert_is(looped(), 1, "float64")


def test_maps_over_the_one_device_of_a_rank() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("device",))
    rows = jax.sharding.PartitionSpec("device")
    for call in (hvd.allreduce, hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.alltoall, hvd.reducescatter):
        once = call(mine(shape=(6, 2)))
        by_shard = jax.shard_map(call, mesh=mesh, in_specs=rows, out_specs=rows)
        assert_is(by_shard(mine(shape=(6, 2))), once)
        assert_is(jax.jit(by_shard)(mine(shape=(6, 2))), once)
        assert_is(jax.pmap(call)(mine(shape=(6, 2))[None])[0], once)


def test_what_is_under_way_ends_before_its_session() -> None:
    results = [jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="last"))(mine())]
    hvd.shutdown()
    hvd.init()
    assert_is(results[0], sum(everybodys()))


@pytest.mark.usefixtures("several_ranks")
def test_a_program_of_an_earlier_session_does_not_run() -> None:
    """JAX does not forget one that was compiled by hand."""
    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="by hand")).lower(mine()).compile()
    assert_is(program(mine()), sum(everybodys()))
    hvd.shutdown()
    hvd.init()
    with pytest.raises(jax.errors.JaxRuntimeError, match="earlier session"):
        jax.block_until_ready(program(mine()))
    with pytest.raises(Exception, match="earlier session"):
        hvd.raise_failure()


@pytest.mark.usefixtures("several_ranks")
def test_a_linear_function_of_an_earlier_session_does_not_run() -> None:
    """Nor its transpose."""
    call = lambda x: hvd.allreduce(x, op=hvd.Sum, name="kept")  # noqa: E731
    linear, transpose = jax.linearize(call, mine())[1], jax.vjp(call, mine())[1]
    assert_is(linear(mine()), sum(everybodys()))
    assert_is(transpose(mine())[0], sum(everybodys()))
    hvd.shutdown()
    hvd.init()
    for earlier in (linear, transpose):
        with pytest.raises(RuntimeError, match="earlier session"):
            earlier(mine())
    assert_usable()


def test_a_commit_outlives_steps_that_donate_their_arguments() -> None:
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="donated"), donate_argnums=0)
    state = hvd.elastic.JaxState(params=mine())
    for _ in range(3):
        state.sync()
        state.params = step(state.params)
        state.restore()
        assert_is(state.params, array_of(0))
    state.params = step(state.params)
    state.commit()
    state.params = step(state.params)
    state.restore()
    assert_is(state.params, hvd.size() * array_of(0))


def test_a_state_keeps_what_was_committed() -> None:
    state = hvd.elastic.JaxState(params={"w": mine()}, batch=hvd.rank())
    state.sync()
    assert_is(state.params["w"], array_of(0))
    assert state.batch == 0
    state.params = {"w": state.params["w"] + 1}
    state.restore()
    assert_is(state.params["w"], array_of(0))
    state.params, state.batch = {"w": state.params["w"] + 1}, 1
    state.commit()
    state.params = None
    state.restore()
    assert_is(state.params["w"], array_of(0) + 1)
    assert state.batch == 1
