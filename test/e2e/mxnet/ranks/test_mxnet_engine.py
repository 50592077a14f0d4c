"""The collectives as operations of MXNet's engine: what waits for what, and what does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest

import horovod.mxnet as hvd
from horovod import _core
from mxnet_world import assert_is, assert_usable, everybodys, meet, mine
from rank_world import comes_true


@pytest.fixture
def let_others_come(tmp_path: Path) -> Callable[[], None]:
    """Rank 0 makes its calls first: the others begin the test when it calls this."""
    go = Path(hvd.broadcast_object(str(tmp_path / "go"), name="go"))
    if hvd.rank() == 0:
        return go.touch
    assert comes_true(go.exists), "rank 0 waits for calls that the others have not made"
    return lambda: None


@pytest.mark.usefixtures("several_ranks")
def test_a_call_returns_before_the_others_have_made_it(let_others_come: Callable[[], None]) -> None:
    given, written = mine(), mine()
    made = hvd.allreduce(given, op=hvd.Sum, name="late")
    hvd.broadcast_(written, 1, name="written late")
    let_others_come()
    assert_is(made, sum(everybodys()))
    assert_is(written, everybodys()[1])


@pytest.mark.usefixtures("several_ranks")
def test_later_writes_and_reads_wait_for_a_pending_call(let_others_come: Callable[[], None]) -> None:
    given = mine()
    made = hvd.allreduce(given, op=hvd.Sum, name="pending")
    given[:] = -1  # must not reach the others
    hvd.allreduce_(made, op=hvd.Max, name="again")
    made += 1
    doubled = made * 2
    let_others_come()
    assert_is(doubled, 2 * (sum(everybodys()) + 1))
    assert_is(given, np.full((4, 3), -1.0))


def test_a_call_waits_for_what_its_arrays_come_from() -> None:
    x = mx.nd.ones((300, 300), dtype="float64") / 300
    for _ in range(20):
        x = mx.nd.dot(x, x)
    np.testing.assert_allclose(hvd.allreduce(x, name="computed").asnumpy(), 1 / 300, rtol=1e-6)
    np.testing.assert_allclose(hvd.allgather(x, name="computed").asnumpy(), 1 / 300, rtol=1e-6)


def test_many_calls_in_another_order_on_each_rank() -> None:
    arrays = [mx.nd.ones(10) * number for number in range(200)]
    for turn in range(3):
        for number in np.random.RandomState(10 * turn + hvd.rank()).permutation(200):
            hvd.allreduce_(arrays[number], op=hvd.Sum, name=f"many.{number}", priority=-int(number))
    for number, array in enumerate(arrays):
        assert_is(array, np.full(10, number * float(hvd.size()) ** 3))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4)])
def test_many_calls_that_read_one_array_in_another_order_on_each_rank(shape: tuple[int, ...]) -> None:
    given, made = mine("float32", shape), {}
    for number in np.random.RandomState(hvd.rank()).permutation(30):
        made[number] = hvd.allreduce(given, op=hvd.Sum, name=f"read.{number}")
    for one in made.values():
        assert_is(one, sum(everybodys("float32", shape)))


def test_calls_of_one_array_keep_their_order() -> None:
    x = mx.nd.ones(3, dtype="float64")
    for number in range(50):
        hvd.allreduce_(x, op=hvd.Sum, name="one")
        x += number
    expected = 1.0
    for number in range(50):
        expected = expected * hvd.size() + number
    np.testing.assert_allclose(x.asnumpy(), expected, rtol=1e-12)


@pytest.mark.usefixtures("several_ranks")
def test_what_ranks_disagree_on_fails_where_it_is_waited_for_on_all() -> None:
    wrong = hvd.allreduce(mx.nd.ones(hvd.rank() + 1), name="disagreed")
    depends = wrong * 2
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        depends.asnumpy()
    written = mx.nd.ones(hvd.rank() + 1)
    hvd.broadcast_(written, 0, name="disagreed")
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        written.wait_to_read()
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        hvd.allgather(mx.nd.ones((2, hvd.rank() + 1)), name="disagreed")
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_an_error_that_was_raised_is_not_kept_by_the_engine() -> None:
    with contextlib.suppress(mx.MXNetError):
        mx.nd.waitall()  # of what other tests did
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        hvd.allgather(mx.nd.ones((2, hvd.rank() + 1)), name="raised")
    mx.nd.waitall()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_a_call_on_what_has_failed_is_not_made() -> None:
    wrong = hvd.allreduce(mx.nd.ones(hvd.rank() + 1), name="first")
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        hvd.allgather(wrong, name="second")
    assert _core.pending_operations() == []
    wrong = hvd.allreduce(mx.nd.ones(hvd.rank() + 1), name="first")
    with pytest.raises(mx.MXNetError, match="Mismatched tensor shapes"):
        hvd.allreduce(wrong, name="second").asnumpy()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_two_calls_of_one_name_at_once(let_others_come: Callable[[], None]) -> None:
    """One of them is refused, whichever the engine begins later, as long as the other is under way."""
    if hvd.rank() != 0:
        hvd.allreduce(mine(), op=hvd.Sum, name="twice").wait_to_read()
    else:
        def outcome(made: Any) -> Any:
            try:
                return made.asnumpy()
            except mx.MXNetError as error:
                return str(error)

        twice = [hvd.allreduce(mine(), op=hvd.Sum, name="twice") for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(outcome, made) for made in twice]
            wait(waiting, timeout=30, return_when=FIRST_COMPLETED)
            let_others_come()
            outcomes = [one.result() for one in waiting]
        assert sorted(isinstance(one, str) for one in outcomes) == [False, True]
        assert "twice" in next(one for one in outcomes if isinstance(one, str))
    assert_usable()


def test_what_the_engine_still_has_to_do_ends_before_the_session() -> None:
    made = [hvd.allreduce(mine(), op=hvd.Sum, name=f"last.{number}") for number in range(20)]
    hvd.shutdown()
    hvd.init()
    for one in made:
        assert_is(one, sum(everybodys()))


def test_a_call_does_not_run_in_a_later_session() -> None:
    x = mx.nd.ones((1500, 1500), dtype="float64") / 1500
    for _ in range(4):
        x = mx.nd.dot(x, x)
    made = hvd.allreduce(x, name="of the session before")
    try:
        raise ValueError  # while it is handled, shutdown() waits for nothing
    except ValueError:
        hvd.shutdown()
    hvd.init()
    with pytest.raises(mx.MXNetError, match="shut down"):
        made.wait_to_read()
    meet()
    assert_usable()


def test_without_a_session() -> None:
    hvd.shutdown()
    made = hvd.allreduce(mx.nd.ones(2))
    with pytest.raises(mx.MXNetError, match=r"shut down; use hvd\.init"):
        made.asnumpy()
    with pytest.raises(mx.MXNetError, match=r"shut down; use hvd\.init"):
        hvd.allgather(mx.nd.ones(2))
    hvd.init()
    assert_usable()
