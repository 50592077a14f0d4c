"""Each collective at once and inside a compiled function, in every type."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import horovod.jax as hvd
from jax_world import TYPES, array_of, assert_is, everybodys, mine
from rank_world import REDUCTIONS


@pytest.mark.parametrize("dtype", TYPES)
def test_allreduce_of_every_type(way: Any, dtype: str) -> None:
    for name, expected in REDUCTIONS.items():
        op = getattr(hvd, name)
        if name == "Product" and dtype in ("int8", "uint8"):
            continue  # three ranks' products do not fit
        made = way(lambda x, op=op: hvd.allreduce(x, op=op, name=f"reduced.{op}"))(mine(dtype, (2, 2)))
        assert_is(made, expected(everybodys(dtype, (2, 2))), dtype)


def test_averages_and_factors(way: Any) -> None:
    expected = sum(everybodys())
    call = way(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25))
    assert_is(call(mine()), expected / 2)
    np.testing.assert_allclose(way(hvd.allreduce)(mine()), expected / hvd.size(), rtol=1e-6)


def test_the_argument_stays_as_it_was(way: Any) -> None:
    given = mine()
    way(lambda x: hvd.allreduce(x, op=hvd.Sum))(given)
    way(lambda x: hvd.broadcast(x, 0))(given)
    assert_is(given, array_of(hvd.rank()))


def test_numbers_and_numpy_arrays_are_taken(way: Any) -> None:
    total = sum(range(1, hvd.size() + 1))
    assert float(way(lambda x: hvd.allreduce(x, op=hvd.Sum))(hvd.rank() + 1.0)) == total
    assert_is(hvd.allreduce(array_of(hvd.rank()), op=hvd.Sum), sum(everybodys()))


def test_nothing_is_reduced_to_nothing(way: Any) -> None:
    assert_is(way(lambda x: hvd.allreduce(x, op=hvd.Sum))(jax.numpy.zeros((0, 3), "float32")), np.zeros((0, 3)))


def test_a_group(way: Any) -> None:
    shapes = [(3,), (2, 2), (70_000,)]
    given = [mine("float32", shape) for shape in shapes]
    for name in ("group", None):
        made = way(lambda *arrays, name=name: hvd.grouped_allreduce(arrays, op=hvd.Sum, name=name))(*given)
        for one, shape in zip(made, shapes, strict=True):
            assert_is(one, sum(everybodys("float32", shape)))
    assert hvd.grouped_allreduce([]) == []


def test_fp16_compression_gives_the_type_back(way: Any) -> None:
    fp16 = hvd.Compression.fp16
    assert_is(way(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=fp16))(mine()), sum(everybodys()))
    third = way(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=fp16))(jax.numpy.full(2, 1 / 3, "float32"))
    assert_is(third, np.full(2, np.float16(1 / 3) * hvd.size()))
    made = way(lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Sum, compression=fp16))(mine(), mine("int32"))
    assert_is(made[0], sum(everybodys()))
    assert_is(made[1], sum(everybodys("int32")), "int32")


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_what_only_moves_elements(way: Any, dtype: str) -> None:
    shape = (2 * hvd.size(), 3)
    all_of_them = [array_of(rank, dtype, shape).astype(np.float64) for rank in range(hvd.size())]
    given = mine(dtype, shape)
    assert_is(way(hvd.allgather)(given), np.concatenate(all_of_them), dtype)
    root = hvd.size() - 1
    assert_is(way(lambda x: hvd.broadcast(x, root))(given), all_of_them[root], dtype)
    own = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
    assert_is(way(hvd.alltoall)(given), np.concatenate([one[own] for one in all_of_them]), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_reducescatter_gives_the_first_ranks_one_row_more(way: Any, dtype: str) -> None:
    rows = 2 * hvd.size() + 1
    expected = sum(everybodys(dtype, (rows, 3)))
    first = 0 if hvd.rank() == 0 else 2 * hvd.rank() + 1
    share = expected[first : 2 * hvd.rank() + 3]
    call = way(lambda x: hvd.reducescatter(x, op=hvd.Sum))
    assert_is(call(mine(dtype, (rows, 3))), share, dtype)
    if dtype == "float32":
        scaled = way(lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25))
        assert_is(scaled(mine(dtype, (rows, 3))), share / 2)


def test_types_that_are_never_reduced_move_at_once() -> None:
    assert_is(hvd.broadcast(mine("uint32", (3,)), 0), array_of(0, "uint32", (3,)), "uint32")
    made = hvd.allgather(mine("complex64", (2,)) * 1j)
    assert_is(made.imag, np.concatenate(everybodys("float32", (2,))))


def test_uneven_rows_are_gathered_and_exchanged_at_once() -> None:
    rank, size = hvd.rank(), hvd.size()
    gathered = hvd.allgather(jax.numpy.full((rank, 2), rank, "float32"))
    assert_is(gathered, np.repeat(np.arange(size), np.arange(size))[:, None] * np.ones(2))
    splits = [rank + to + 1 for to in range(size)]
    rows = np.concatenate([np.full(count, 10 * rank + to) for to, count in enumerate(splits)])
    made, received = hvd.alltoall(rows, splits=splits)
    assert_is(received, [sender + rank + 1 for sender in range(size)], "int32")
    assert_is(made, np.concatenate([np.full(s + rank + 1, 10 * s + rank) for s in range(size)]), "int64")


def test_loops_and_branches_of_a_program() -> None:
    """Calls of one name follow each other, those of a branch too."""

    @jax.jit
    def steps(x: Any) -> Any:
        x = jax.lax.fori_loop(0, 3, lambda i, x: hvd.allreduce(x + i, name="in_loop"), x)
        x, _ = jax.lax.scan(lambda x, _: (hvd.allreduce(x, name="in_scan"), None), x, None, length=2)
        return jax.lax.cond(x[0] > 0, lambda x: hvd.allreduce(2 * x, name="in_branch"), lambda x: x, x)

    for _ in range(5):
        made = steps(jax.numpy.full(2, float(hvd.rank())))
    assert_is(made, np.full(2, 2 * ((hvd.size() - 1) / 2 + 3)), "float64")


def test_a_process_set_works_among_itself(way: Any) -> None:
    last = hvd.add_process_set([hvd.size() - 1]) if hvd.size() > 1 else hvd.global_process_set
    try:
        if last.included():
            assert_is(way(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=last))(mine()), array_of(hvd.rank()))
            assert_is(way(lambda x: hvd.allgather(x, process_set=last))(mine()), array_of(hvd.rank()))
            assert hvd.allgather_object(hvd.rank(), process_set=last) == [hvd.rank()]
    finally:
        if last is not hvd.global_process_set:
            hvd.remove_process_set(last)


def test_rows_of_nothing(way: Any) -> None:
    nothing = jax.numpy.zeros((2 * hvd.size(), 0), "float32")
    assert way(hvd.allgather)(nothing).shape == (2 * hvd.size() ** 2, 0)
    assert way(hvd.alltoall)(nothing).shape == (2 * hvd.size(), 0)


def test_an_array_from_outside_is_reduced_whenever_the_program_runs() -> None:
    outside = mine()
    program = jax.jit(lambda x: x + hvd.allreduce(outside, op=hvd.Sum, name="outside"))
    assert "@horovod_jax_collective" in program.lower(outside).as_text()
    for _ in range(2):
        assert_is(program(outside), array_of(hvd.rank()) + sum(everybodys()))


def test_one_array_twice_and_arguments_that_are_given_away() -> None:
    def both(x: Any) -> Any:
        first, second = hvd.grouped_allreduce([x, x], op=hvd.Sum, name="twice")
        return first, second, hvd.allreduce(x, op=hvd.Sum, name="once") + x

    for program in (jax.jit(both), jax.jit(both, donate_argnums=0)):
        first, second, more = program(mine())
        assert_is(first, sum(everybodys()))
        assert_is(second, sum(everybodys()))
        assert_is(more, sum(everybodys()) + array_of(hvd.rank()))


def test_a_set_that_is_removed_leaves_no_program() -> None:
    ids = []
    for _ in range(2):
        last = hvd.add_process_set([hvd.size() - 1]) if hvd.size() > 1 else hvd.global_process_set
        if hvd.size() == 1:
            return
        ids.append(last.process_set_id)
        program = jax.jit(lambda x, last=last: hvd.allreduce(x, process_set=last))
        if last.included():
            assert_is(program(mine()), array_of(hvd.rank()))
        hvd.remove_process_set(last)
        with pytest.raises(ValueError, match="not registered"):
            program(mine())
    hvd.barrier()


@pytest.mark.usefixtures("several_ranks")
def test_a_join_does_not_overtake_a_program() -> None:
    def late(x: Any) -> Any:
        x = jax.lax.fori_loop(0, 40, lambda _, x: jax.numpy.tanh(x @ x), x)
        return hvd.allreduce(x * 0 + hvd.rank() + 1, op=hvd.Sum, name="late")

    x = jax.numpy.full((300, 300), 0.01)
    results = [jax.jit(late)(x)]
    if hvd.rank() > 0:
        results.append(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="alone"))(x * 0 + 1))
    hvd.join()
    assert float(results[0][0, 0]) == sum(range(1, hvd.size() + 1))
    assert float(results[-1][0, 0]) == (hvd.size() - 1 if hvd.rank() > 0 else sum(range(1, hvd.size() + 1)))


def test_a_rank_that_has_joined_gives_zeros(way: Any) -> None:
    call = way(lambda x: hvd.allreduce(x, op=hvd.Sum, name="before_join"))
    if hvd.rank() > 0:
        assert_is(call(mine()), sum(everybodys()[1:]))
    assert hvd.join() in range(hvd.size())
    hvd.barrier()


def test_arrays_stay_on_the_device_that_was_chosen() -> None:
    device = jax.devices()[0]
    assert hvd.allreduce(jax.device_put(mine(), device)).committed
    assert not hvd.allreduce(mine()).committed
