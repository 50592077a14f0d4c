"""Groups of arrays that are gathered, or reduced and scattered, together: at once, compiled, and their gradients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import horovod.jax as hvd
from jax_world import TYPES, array_of, assert_is, assert_usable, everybodys, mine
from numpy_collectives import gradient_of, result_of


def shapes() -> list[tuple[int, ...]]:
    rows = 2 * hvd.size()
    return [(rows,), (2 * rows, 3), (rows, 2, 2)]


def test_every_type(way: Any) -> None:
    """All in one group."""
    rows = 2 * hvd.size()
    given = [mine(dtype, (rows, 2)) for dtype in TYPES]
    gathered = way(lambda *arrays: hvd.grouped_allgather(arrays, name="types"))(*given)
    shares = way(lambda *arrays: hvd.grouped_reducescatter(arrays, op=hvd.Sum, name="types"))(*given)
    for dtype, whole, share in zip(TYPES, gathered, shares, strict=True):
        assert_is(whole, result_of("allgather", everybodys(dtype, (rows, 2))), dtype)
        assert_is(share, result_of("reducescatter", everybodys(dtype, (rows, 2))), dtype)


def test_options(way: Any) -> None:
    """As of reducescatter; without a name too."""
    given, expected = [mine("float32", shape) for shape in shapes()], {}
    for shape in shapes():
        expected[shape] = result_of("reducescatter", everybodys("float32", shape))
    for options, factor in (
        ({"op": hvd.Sum, "compression": hvd.Compression.fp16}, 1),
        ({"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25, "name": "factors"}, 0.5),
        ({}, 1 / hvd.size()),
    ):
        made = way(lambda *arrays, options=options: hvd.grouped_reducescatter(arrays, **options))(*given)
        for one, right in zip(made, expected.values(), strict=True):
            np.testing.assert_allclose(one, right * factor, rtol=1e-6)
    for one, shape in zip(way(lambda *arrays: hvd.grouped_allgather(arrays))(*given), shapes(), strict=True):
        assert_is(one, result_of("allgather", everybodys("float32", shape)))


def test_nothing_and_numbers_from_outside() -> None:
    assert hvd.grouped_allgather([]) == []
    assert hvd.grouped_reducescatter([]) == []
    made = hvd.grouped_allgather([[hvd.rank()], np.float64([2.5])])
    np.testing.assert_array_equal(made[0], np.arange(hvd.size()))
    np.testing.assert_array_equal(made[1], [2.5] * hvd.size())


def test_a_process_set(way: Any) -> None:
    last = hvd.add_process_set([hvd.size() - 1]) if hvd.size() > 1 else hvd.global_process_set
    if last.included():
        call = way(lambda *arrays: hvd.grouped_allgather(arrays, process_set=last))
        assert_is(call(mine(), mine())[1], array_of(hvd.rank()))
        call = way(lambda *arrays: hvd.grouped_reducescatter(arrays, process_set=last))
        assert_is(call(mine(), mine())[1], array_of(hvd.rank()))
    if last is not hvd.global_process_set:
        hvd.remove_process_set(last)


def test_uneven_rows_at_once() -> None:
    counts = [[rank + 1 for rank in range(hvd.size())], [2 * rank for rank in range(hvd.size())]]
    arrays = [[array_of(rank, "float64", (rows, 2)) for rank, rows in enumerate(some)] for some in counts]
    own = [jax.numpy.asarray(one[hvd.rank()]) for one in arrays]
    made = hvd.grouped_allgather(own, name="uneven")
    for one, all_of_it in zip(made, arrays, strict=True):
        assert_is(one, np.concatenate(all_of_it), "float64")
    _, backward = jax.vjp(lambda own: hvd.grouped_allgather(own, name="uneven"), own)
    for gradient, one in zip(backward(made)[0], own, strict=True):
        assert_is(gradient, one, "float64")
    rows = 2 * hvd.size() + 1
    shares = hvd.grouped_reducescatter([mine("float64", (rows, width)) for width in (1, 2)], op=hvd.Sum)
    for share, width in zip(shares, (1, 2), strict=True):
        assert_is(share, result_of("reducescatter", everybodys("float64", (rows, width))), "float64")


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
def test_gradients(way: Any, kind: str) -> None:
    options = {"op": hvd.Sum} if kind == "reducescatter" else {}
    given = [mine("float64", shape) for shape in shapes()]

    def call(arrays: Any) -> Any:
        *made, count = getattr(hvd, f"grouped_{kind}")([*arrays, np.arange(2 * hvd.size())], name=kind, **options)
        return made, count

    results, _ = jax.eval_shape(call, given)
    weights = [[array_of(rank, "float64", one.shape) for rank in range(hvd.size())] for one in results]
    own = [jax.numpy.asarray(of_ranks[hvd.rank()]) for of_ranks in weights]
    gradients = way(lambda given, own: jax.vjp(call, given, has_aux=True)[1](own)[0])(given, own)
    for gradient, of_ranks in zip(gradients, weights, strict=True):
        np.testing.assert_allclose(gradient, gradient_of(kind, of_ranks))


def test_one_call_of_the_program() -> None:
    for call in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        text = jax.jit(lambda *arrays, call=call: call(arrays)).lower(*[np.ones((6, 2))] * 3).as_text()
        assert text.count("custom_call @horovod_jax_collective") == 1
    hvd.barrier()


def test_wrong_calls_send_nothing(way: Any) -> None:
    for call in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        caller = call.__name__
        with pytest.raises(ValueError, match=rf"hvd\.{caller}\(\): a value without dimensions"):
            way(lambda x, call=call: call([x, x[0, 0]]))(mine())
        with pytest.raises(ValueError, match=rf"hvd\.{caller}\(\): expected an array or a number, got str"):
            way(lambda x, call=call: call([x, "three"]))(mine())
    with pytest.raises(ValueError, match=r"hvd\.grouped_reducescatter\(\): the only ops are Average and Sum"):
        way(lambda x: hvd.grouped_reducescatter([x], op=hvd.Max))(mine())
    with pytest.raises(ValueError, match="type uint32 is not supported"):
        way(lambda x: hvd.grouped_reducescatter([x]))(mine("uint32"))
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_what_ranks_disagree_on_is_raised_on_all() -> None:
    wrong = jax.numpy.ones((hvd.size(), hvd.rank() + 1))
    for call in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
            call([mine(), wrong], name="disagreed")
    assert_usable()
