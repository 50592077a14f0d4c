"""What the torch functions decide by themselves: names, checks, handles."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch


def test_user_names_get_the_prefix_of_their_operation(fake: Any) -> None:
    hvd, x = fake.hvd, torch.ones(2)
    hvd.allreduce(x, name="a")
    hvd.allreduce_(x, name="b")
    hvd.allgather(x, name="c")
    hvd.broadcast(x, 0, name="d")
    hvd.broadcast_(x, 0, name="e")
    hvd.grouped_allreduce([x, x], name="f")
    hvd.grouped_allgather([x], name="g")
    hvd.barrier()
    assert fake.core.names == [
        "allreduce.a",
        "allreduce.b",
        "allgather.c",
        "broadcast.d",
        "broadcast.e",
        "grouped_allreduce.f_1of2",
        "grouped_allreduce.f_2of2",
        "grouped_allgather.g_1of1",
        "barrier.noname",
    ]


def test_only_calls_that_block_say_that_they_are_waited_for_at_once(fake: Any) -> None:
    hvd, x = fake.hvd, torch.ones(2)
    hvd.allreduce(x, name="a")
    hvd.allreduce_(x, name="b")
    for start in (hvd.allreduce_async, hvd.allreduce_async_):
        hvd.synchronize(start(x, name=start.__name__))
    hvd.grouped_allreduce([x, x], name="group")
    assert fake.core.awaited == ["allreduce.a", "allreduce.b"]


def test_automatic_names_count_handles_and_start_again_after_shutdown(fake: Any) -> None:
    hvd, x = fake.hvd, torch.ones(1)
    first = hvd.allreduce_async(x)
    second = hvd.broadcast_async(x, 0)
    third = hvd.grouped_allreduce_async([x, x])
    assert fake.core.names == [
        f"allreduce.noname.{first}",
        f"broadcast.noname.{second}",
        f"grouped_allreduce.noname.{third}_1of2",
        f"grouped_allreduce.noname.{third}_2of2",
    ]
    hvd.shutdown()
    hvd.init()
    fake.core.calls.clear()
    assert hvd.allreduce_async(x) == first
    assert fake.core.names == [f"allreduce.noname.{first}"]


def test_a_refused_operation_gives_its_number_back(fake: Any) -> None:
    """Automatic names go on as on ranks that did not try; a second try matches the first of the others."""
    hvd, x = fake.hvd, torch.ones(1)
    first = hvd.allreduce_async(x)
    fake.core.refusing["allreduce.taken"] = ValueError("taken")
    with pytest.raises(ValueError, match="taken"):
        hvd.allreduce_async(x, name="taken")
    fake.core.refusing[f"grouped_allreduce.noname.{first + 1}_1of1"] = ValueError("taken")
    with pytest.raises(ValueError, match="taken"):
        hvd.grouped_allreduce_async([x])
    assert hvd.allreduce_async(x) == first + 1


def test_synchronize_gives_a_result_once_and_then_none(fake: Any) -> None:
    hvd, x = fake.hvd, torch.arange(3.0)
    handle = hvd.allreduce_async(x)
    assert handle in hvd.mpi_ops._handle_map
    assert torch.equal(hvd.synchronize(handle), x)
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(12345) is None
    assert hvd.mpi_ops._handle_map == {}


def test_poll_of_an_unknown_handle_is_an_error(fake: Any) -> None:
    hvd = fake.hvd
    fake.core.everything_done = False
    handle = hvd.allreduce_async(torch.ones(1))
    assert hvd.poll(handle) is False
    fake.core.everything_done = True
    assert hvd.poll(handle) is True
    hvd.synchronize(handle)
    with pytest.raises(ValueError, match=f"handle {handle} is unknown"):
        hvd.poll(handle)


def test_a_failed_operation_consumes_its_handle(fake: Any) -> None:
    hvd = fake.hvd
    fake.core.failing["allreduce.bad"] = hvd.HorovodInternalError("broken")
    handle = hvd.allreduce_async(torch.ones(1), name="bad")
    with pytest.raises(hvd.HorovodInternalError, match="broken"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None


def test_an_interrupted_wait_can_be_repeated(fake: Any) -> None:
    hvd, x = fake.hvd, torch.arange(2.0)
    fake.core.failing["grouped_allgather.g_2of2"] = KeyboardInterrupt()
    handle = hvd.grouped_allgather_async([x, x + 1], name="g")
    with pytest.raises(KeyboardInterrupt):
        hvd.synchronize(handle)
    del fake.core.failing["grouped_allgather.g_2of2"]
    first, second = hvd.synchronize(handle)
    assert torch.equal(first, x)
    assert torch.equal(second, x + 1)


def test_a_group_waits_for_all_members_and_raises_the_first_error(fake: Any) -> None:
    hvd = fake.hvd
    fake.core.failing["grouped_allreduce.g_1of3"] = hvd.HorovodInternalError("first")
    fake.core.failing["grouped_allreduce.g_2of3"] = hvd.HorovodInternalError("second")
    with pytest.raises(hvd.HorovodInternalError, match="first"):
        hvd.grouped_allreduce([torch.ones(1)] * 3, name="g")


def test_init_forgets_handles_of_the_session_before(fake: Any) -> None:
    hvd = fake.hvd
    hvd.allreduce_async(torch.ones(1))
    hvd.shutdown()
    assert hvd.mpi_ops._handle_map
    hvd.init()
    assert hvd.mpi_ops._handle_map == {}


def test_a_second_init_keeps_what_is_in_flight(fake: Any) -> None:
    hvd = fake.hvd
    handle = hvd.allreduce_async(torch.ones(1))
    hvd.init()
    assert hvd.synchronize(handle) is not None


def test_operations_add_no_warnings(fake: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fake.hvd.allgather(torch.tensor([True]))
        fake.hvd.allreduce(torch.ones(2, requires_grad=True)).sum().backward()


def test_help_names_every_argument_and_what_is_raised(fake: Any) -> None:
    hvd = fake.hvd
    for name in ("allreduce", "grouped_allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
        call = getattr(hvd, name)
        text = inspect.getdoc(call) or ""
        missing = [argument for argument in inspect.signature(call).parameters if f"{argument}:" not in text]
        assert not set(missing) - {"average", "prescale_factor", "postscale_factor"}, (name, missing)
        assert all(word in text for word in (*missing, "ValueError", "HorovodInternalError")), name
    collectives = hvd.__all__[hvd.__all__.index("allreduce") : hvd.__all__.index("Compression")]
    short = [name for name in collectives if len((inspect.getdoc(getattr(hvd, name)) or "").split()) < 15]
    assert short == []
