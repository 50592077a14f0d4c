"""Forward mode applies the same collective to tangents; Jacobians and Hessians of ranks equal those of one process."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import horovod.jax as hvd
from jax_world import array_of, assert_is, assert_usable
from numpy_collectives import LINEAR, call_of, gradient_of, result_of


def rows(factor: int = 1) -> list[Any]:
    return [factor * array_of(rank, "float64", (2 * hvd.size(), 3)) for rank in range(hvd.size())]


def own(arrays: list[Any]) -> Any:
    return jax.numpy.asarray(arrays[hvd.rank()])


@pytest.mark.parametrize("kind", LINEAR)
def test_tangents(way: Any, kind: str) -> None:
    """Also of a linearized function, which may be called again, and transposed."""
    call = call_of(kind, "forward")
    value, tangent = way(lambda x, t: jax.jvp(call, (x,), (t,)))(own(rows()), own(rows(2)))
    assert_is(value, result_of(kind, rows()), "float64")
    assert_is(tangent, result_of(kind, rows(2)), "float64")
    value, linear = jax.linearize(way(call), own(rows()))
    for factor in (1, 3):
        assert_is(way(linear)(own(rows(factor))), result_of(kind, rows(factor)), "float64")
    weights = [array_of(rank, "float64", value.shape) for rank in range(hvd.size())]
    for transposed in (jax.linear_transpose(linear, own(rows())), jax.linear_transpose(call, own(rows()))):
        np.testing.assert_allclose(transposed(own(weights))[0], gradient_of(kind, weights))


def test_numbers_as_tangents_and_gradients(way: Any) -> None:
    """Of the type of the argument, also where another rank gives an array."""
    call = call_of("sum", "number")
    with jax.enable_x64(False):  # where a number of Python has more bits than an array
        one = 1.0 if hvd.rank() == 0 else jax.numpy.asarray(1.0)
        value, tangent = way(lambda: jax.jvp(call, (1.0,), (one,)))()
        (gradient,) = way(lambda: jax.vjp(call, 1.0)[1](one))()
    for made in (value, tangent, gradient):
        assert_is(made, hvd.size())


def test_factors_groups_and_compression(way: Any) -> None:
    options = {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25, "compression": hvd.Compression.fp16}

    def call(x: Any, y: Any) -> Any:
        return hvd.grouped_allreduce([x, y], name="group", **options)

    made = way(lambda *given: jax.jvp(call, given[:2], given[2:]))(
        own(rows()), own(rows())[0], own(rows(2)), own(rows(2))[0]
    )
    for results, factor in zip(made, (1, 2), strict=True):
        assert_is(results[0], sum(rows(factor)) / 2, "float64")
        assert_is(results[1], sum(rows(factor))[0] / 2, "float64")


def test_what_has_no_tangent_is_not_sent(way: Any) -> None:
    """Integers, and what does not depend on what is differentiated."""
    outside = own(rows())[0]

    def call(x: Any) -> Any:
        x, count, other = hvd.grouped_allreduce([x, jax.numpy.int32(x[0, 0] > 0), outside], op=hvd.Sum, name="zeros")
        return x * other[0], count

    def pushed(x: Any, t: Any) -> Any:
        return jax.jvp(call, (x,), (t,))

    program = jax.jit(pushed).lower(own(rows()), own(rows(2))).as_text()
    assert set(re.findall(r"zeros\.tangent_\d+of\d+", program)) == {"zeros.tangent_1of1"}
    (value, count), (tangent, none) = way(pushed)(own(rows()), own(rows(2)))
    total = sum(rows())
    assert_is(value, total * total[0, 0], "float64")
    assert_is(tangent, 2 * total * total[0, 0], "float64")
    assert int(count) == hvd.size()
    assert none.dtype == jax.dtypes.float0


def residuals(w: Any, x: Any) -> Any:
    return jax.numpy.tanh(x @ w) ** 2


def mean_alone(w: Any, x: Any) -> Any:
    return residuals(w, x).mean()


def mean_of_all(w: Any, x: Any) -> Any:
    """A loss of all ranks' rows, the same on each."""
    return hvd.allreduce(mean_alone(w, x), name="loss")


START, DIRECTION = np.array([0.3, -0.2, 0.1]), np.array([1.0, -2.0, 0.5])


def own_and_all() -> tuple[Any, Any]:
    everything = np.random.default_rng(7).normal(size=(2 * hvd.size(), 3))
    return everything[2 * hvd.rank() : 2 * hvd.rank() + 2], everything


def averages(arrays: Any) -> Any:
    """In reverse mode each rank has the derivative by its own copy of `w`: their average is that by all copies."""
    return [hvd.allreduce(array, name=f"average.{i}") for i, array in enumerate(arrays)]


def assert_all_close(made: Any, expected: Any) -> None:
    for one, right in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-9)


def test_jacobians_equal_one_process() -> None:
    x, everything = own_and_all()

    @jax.jit
    def distributed(w: Any) -> Any:
        def gathered(w: Any) -> Any:
            return hvd.allgather(residuals(w, x), name="residuals")

        forward = jax.jacfwd(gathered)(w), jax.jacfwd(mean_of_all)(w, x)
        # An allgather's gradient is an average, too, of which each rank has the rows that it gave.
        reverse = averages([hvd.size() * jax.jacrev(gathered)(w), jax.jacrev(mean_of_all)(w, x)])
        return *forward, *reverse

    @jax.jit
    def alone(w: Any) -> Any:
        return jax.jacfwd(residuals)(w, everything), jax.grad(mean_alone)(w, everything)

    assert_all_close(distributed(START), [*alone(START)] * 2)


def test_hessians_equal_one_process() -> None:
    x, everything = own_and_all()

    @jax.jit
    def distributed(w: Any, v: Any) -> Any:
        def gradient(w: Any) -> Any:
            return hvd.allreduce(jax.grad(mean_alone)(w, x), name="gradient")

        forward_over_reverse = jax.jvp(lambda w: jax.grad(mean_of_all)(w, x), (w,), (v,))[1]
        reverse_over_forward = jax.grad(lambda w: jax.jvp(lambda w: mean_of_all(w, x), (w,), (v,))[1])(w)
        products = [jax.jvp(gradient, (w,), (v,))[1], *averages([forward_over_reverse, reverse_over_forward])]
        return [*products, jax.jacfwd(gradient)(w), jax.jacfwd(jax.jacfwd(mean_of_all))(w, x)]

    expected = jax.jit(jax.hessian(mean_alone))(START, everything)
    assert_all_close(distributed(START, DIRECTION), [*[expected @ DIRECTION] * 3, expected, expected])


def test_batches_of_tangents_and_tangents_of_batches(way: Any) -> None:
    scales = np.arange(1.0, 4.0)
    batch = jax.numpy.stack([own(rows(scale)) for scale in (1, 2, 3)])
    for kind in ("sum", "allgather"):
        call, result = call_of(kind, "mixed"), result_of(kind, rows())
        pushed = way(jax.vmap(lambda t, call=call: jax.jvp(call, (own(rows()),), (t,))[1]))(batch)
        np.testing.assert_allclose(pushed, result * scales[:, None, None])
        _, made = way(lambda x, call=call: jax.jvp(jax.vmap(call), (x,), (x,)))(batch)
        np.testing.assert_allclose(made, result * scales[:, None, None])


def test_loops_branches_and_checkpoints() -> None:
    def steps(x: Any) -> Any:
        x = jax.lax.fori_loop(0, 2, lambda _, x: hvd.allreduce(x, name="loop") * 2, x)
        x, _ = jax.lax.scan(lambda x, _: (hvd.allreduce(x, op=hvd.Sum, name="scan"), None), x, None, length=2)
        x = jax.lax.cond(x[0] > 0, lambda x: hvd.allreduce(3 * x, name="branch"), lambda x: x, x)
        return jax.checkpoint(lambda x: hvd.allreduce(x, name="kept") ** 2)(x)

    x, size = jax.numpy.full(2, hvd.rank() + 1.0), hvd.size()
    factor = 4 * 3 * size**2
    mean = (size + 1) / 2
    value, tangent = jax.jit(lambda x: jax.jvp(steps, (x,), (x,)))(x)
    np.testing.assert_allclose(value, np.full(2, (factor * mean) ** 2))
    np.testing.assert_allclose(tangent, 2 * value)
    gradient = jax.jit(jax.grad(lambda x: steps(x).sum()))(x)
    np.testing.assert_allclose(gradient, np.full(2, 2 * factor**2 * mean))


def test_uneven_rows_at_once() -> None:
    """Second derivatives too, and those that jax.vmap makes of reverse mode."""
    arrays = [array_of(rank, "float64", (rank + 1,)) for rank in range(hvd.size())]
    together, rank = np.concatenate(arrays), hvd.rank()
    first = sum(range(rank + 1))
    call = call_of("allgather", "uneven")
    value, tangent = jax.jvp(call, (own(arrays),), (2 * own(arrays),))
    assert_is(value, together, "float64")
    assert_is(tangent, 2 * together, "float64")
    own_rows = slice(first, first + rank + 1)
    gradient = jax.grad(lambda x: (call(x) ** 3).sum())
    np.testing.assert_allclose(gradient(own(arrays)), 3 * together[own_rows] ** 2)
    second = jax.grad(lambda x: gradient(x).sum())(own(arrays))
    np.testing.assert_allclose(second, 6 * together[own_rows] / hvd.size())
    made = jax.vmap(jax.vjp(call, own(arrays))[1])(jax.numpy.eye(len(together)))[0]
    np.testing.assert_allclose(made, np.eye(len(together))[:, own_rows])


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_reductions_without_forward_mode(way: Any, op: str) -> None:
    """Their gradients are the ranks' gradients reduced, as ever, which is no derivative."""
    call = lambda x: hvd.allreduce(x, op=getattr(hvd, op), name=f"no.{op}")  # noqa: E731
    x = own(rows())[0]
    for forward in (
        lambda x: jax.jvp(call, (x,), (x,)),
        jax.jacfwd(call),
        lambda x: jax.linearize(call, x)[1](x),
    ):
        with pytest.raises(NotImplementedError, match=rf"hvd\.allreduce\(\): op={op} cannot .* in forward mode"):
            way(forward)(x)
    weights = own(rows(2))[0]
    gradient = way(jax.grad(lambda x: (call(x) * weights).sum()))(x)
    np.testing.assert_allclose(gradient, hvd.allreduce(weights, op=getattr(hvd, op)))
    assert_usable()
