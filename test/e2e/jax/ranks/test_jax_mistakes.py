"""Wrong calls are refused with a reason, on every rank, and the session goes on."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax
import pytest

import horovod.jax as hvd
from horovod.jax import _call
from jax_world import WAYS, assert_is, assert_usable, everybodys, mine


@pytest.mark.parametrize("way", list(WAYS))
def test_types_that_cannot_be_reduced(way: str) -> None:
    with pytest.raises(ValueError, match="type uint32 is not supported"):
        WAYS[way](hvd.allreduce)(jax.numpy.ones(3, "uint32"))
    with pytest.raises(ValueError, match="type bool is not supported with this op"):
        WAYS[way](hvd.allreduce)(jax.numpy.ones(3, bool))
    with pytest.raises(ValueError, match="only ops are Average and Sum"):
        WAYS[way](lambda x: hvd.reducescatter(x, op=hvd.Max))(mine())
    for call in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(ValueError, match="without dimensions"):
            WAYS[way](call)(jax.numpy.float32(1))
    assert_usable()


def test_values_that_are_no_arrays() -> None:
    with pytest.raises(ValueError, match="expected an array or a number, got str"):
        hvd.allreduce("three")
    with pytest.raises(ValueError, match=r"broadcast_parameters\['name'\] is a str"):
        hvd.broadcast_parameters({"name": "model"})
    with pytest.raises(ValueError, match="inside a compiled function"):
        jax.jit(hvd.broadcast_parameters)(mine())
    with pytest.raises(ValueError, match=r"expected an optax\.GradientTransformation, got int"):
        hvd.DistributedOptimizer(3)
    with pytest.raises(ValueError, match=r"got MultiSteps; give its gradient_transformation\(\)"):
        hvd.DistributedOptimizer(optax.MultiSteps(optax.sgd(0.1), 2))
    for wrong in ({"op": hvd.Max}, {"groups": 0}, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}):
        with pytest.raises(ValueError, match=r"op|groups"):
            hvd.allreduce_gradients([mine()], **wrong)


def test_every_call_before_init_is_the_same_error() -> None:
    array = mine()
    calls = (hvd.allreduce, hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.alltoall, hvd.reducescatter)
    of_gradients = [lambda call: jax.grad(lambda x: call(x).sum()), lambda call: jax.jit(jax.grad(lambda x: call(x).sum()))]
    hvd.shutdown()
    try:
        for way in (*WAYS.values(), jax.vmap, lambda call: jax.jit(jax.vmap(call)), *of_gradients):
            for call in calls:
                with pytest.raises(hvd.HorovodInternalError, match=r"not been initialized; use hvd\.init"):
                    way(lambda x, call=call: call(x))(array)  # not one that JAX has compiled before
    finally:
        hvd.init()
    assert_usable()


def deleted() -> Any:
    array = mine()
    array.delete()
    return array


REFUSED: dict[str, Callable[[], Any]] = {
    "type": lambda: hvd.allreduce(jax.numpy.ones(3, "uint32")),
    "type, compiled": lambda: jax.jit(hvd.allreduce)(jax.numpy.ones(3, "uint32")),
    "factor": lambda: hvd.allreduce(mine(), prescale_factor="a"),
    "op": lambda: hvd.allreduce(mine(), op=99),
    "op, compiled": lambda: jax.jit(lambda x: hvd.allreduce(x, op=99))(mine()),
    "root": lambda: hvd.broadcast(mine(), hvd.size()),
    "root, compiled": lambda: jax.jit(lambda x: hvd.broadcast(x, hvd.size()))(mine()),
    "no root": lambda: hvd.broadcast(mine(), None),
    "key": lambda: hvd.broadcast(jax.random.key(0)),
    "deleted": lambda: hvd.allreduce(deleted()),
    "vmap": lambda: jax.vmap(hvd.alltoall)(mine("float32", (3,))),
    "rows": lambda: hvd.allgather(1.0),
    "splits": lambda: hvd.alltoall(mine(), splits=[100, 100]),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_a_refused_call_uses_no_automatic_name(what: str) -> None:
    if hvd.rank() == 0:
        with pytest.raises((ValueError, TypeError, RuntimeError, NotImplementedError)):
            REFUSED[what]()
    assert_is(hvd.allreduce(mine(), op=hvd.Sum), sum(everybodys()))


def test_a_call_whose_tangents_are_refused_has_used_its_automatic_name() -> None:
    """The other ranks have made it."""
    largest = functools.partial(hvd.allreduce, op=hvd.Max)
    if hvd.rank() == 0:
        with pytest.raises(NotImplementedError, match="in forward mode"):
            jax.jvp(largest, (mine(),), (mine(),))
    else:
        largest(mine())
    assert_is(hvd.allreduce(mine(), op=hvd.Sum), sum(everybodys()))


@pytest.mark.usefixtures("several_ranks")
def test_a_rank_that_is_no_member() -> None:
    first = hvd.add_process_set([0])
    calls = [lambda x: hvd.allreduce(x, process_set=first), lambda x: hvd.allreduce_gradients([x], process_set=first)]
    for call in [*calls, *map(jax.jit, calls)] if hvd.rank() > 0 else []:
        with pytest.raises(ValueError, match="not a member"):
            call(mine())
    hvd.barrier()
    hvd.remove_process_set(first)
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_what_ranks_disagree_on_is_raised_on_all() -> None:
    wrong = jax.numpy.ones(hvd.rank() + 1)
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched tensor shapes"):
        hvd.allreduce(wrong, name="disagreed")
    with pytest.raises(jax.errors.JaxRuntimeError, match="Mismatched tensor shapes"):
        jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, name="disagreed"))(wrong))
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched tensor shapes"):
        hvd.raise_failure()
    hvd.raise_failure()  # told once
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_rows_that_differ_are_refused_in_a_program() -> None:
    """XLA has compiled the shape of the result before."""
    for rows in (hvd.rank() + 1, 2 if hvd.rank() != 1 else 3):
        with pytest.raises(jax.errors.JaxRuntimeError, match="call it outside of one"):
            jax.block_until_ready(jax.jit(hvd.allgather)(jax.numpy.ones((rows, 2))))
        with pytest.raises(ValueError, match="XLA has compiled a result of shape"):
            hvd.raise_failure()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_rows_that_differ_are_refused_under_checkpoint() -> None:
    """JAX has computed with the shape of the result before: a mean, say, divides by it."""
    x = jax.numpy.arange(hvd.rank() + 2.0)
    for _ in range(2):  # the second time JAX knows what it was told of the call
        mean = jax.checkpoint(lambda x: hvd.allgather(x, name="uneven").mean())
        for call in (mean, jax.grad(mean)):
            with pytest.raises(ValueError, match=r"JAX has traced it for .* rows .* Under jax\.checkpoint"):
                call(x)
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_rows_that_an_alltoall_cannot_divide() -> None:
    with pytest.raises(ValueError, match="cannot be divided equally"):
        jax.jit(hvd.alltoall)(jax.numpy.ones((hvd.size() + 1, 2)))
    with pytest.raises(ValueError, match="splits cannot be used inside"):
        jax.jit(lambda x: hvd.alltoall(x, splits=[1, 1]))(mine())
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_a_failure_is_told_to_the_thread_that_asks_whatever_others_did() -> None:
    wrong, good = jax.numpy.ones(hvd.rank() + 1), jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="good"))

    def fails() -> str:
        with pytest.raises(jax.errors.JaxRuntimeError):
            jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, name="bad"))(wrong))
        return "failed"

    with ThreadPoolExecutor(1) as other:
        fails()
        assert_is(other.submit(good, mine()).result(), sum(everybodys()))
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched tensor shapes"):
            hvd.raise_failure()
        assert other.submit(fails).result() == "failed"
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched tensor shapes"):
            hvd.raise_failure()
        with contextlib.suppress(hvd.HorovodInternalError):
            other.submit(hvd.raise_failure).result()
        assert_is(other.submit(good, mine()).result(), sum(everybodys()))
    assert_usable()


def test_a_jax_without_what_the_call_needs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_call, "problem", lambda: "JAX 0 lacks a part of it")
    with pytest.raises(RuntimeError, match="cannot be called inside a compiled function: JAX 0 lacks"):
        jax.jit(lambda x: hvd.allreduce(x, name="lacks"))(mine())  # not traced before
    gradient = jax.grad(lambda x: hvd.allreduce(x, op=hvd.Sum, name="without").sum())(mine())
    assert_is(gradient, np.full((4, 3), hvd.size()))
    assert_is(hvd.allreduce(mine(), op=hvd.Sum), sum(everybodys()))


def test_calls_of_a_program_are_chained_by_jaxs_token() -> None:
    """XLA may happen to run independent calls in the same order everywhere; what makes it so is in the program."""
    text = jax.jit(lambda x, y: (hvd.allreduce(x), hvd.broadcast(y, 0))).lower(np.ones(2), np.ones(3)).as_text()
    calls = re.findall(r"(%\w+):2 = stablehlo.custom_call @horovod_jax_collective\(%\w+, (%[\w#]+)\)", text)
    assert [token for _, token in calls] == ["%arg0", f"{calls[0][0]}#1"]
    hvd.barrier()
