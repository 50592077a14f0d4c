"""Allreduce: every form, type, reduction and factor; names, and ranks that disagree."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod._common.native import core
from world import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    SHAPES,
    assert_same,
    assert_usable,
    of_all,
    of_rank,
    scaled,
    total,
)

READS = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")  # whether the core can read its tensors


def blocking(tensor: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return hvd.allreduce(tensor, **arguments)


def asynchronous(tensor: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return hvd.synchronize(hvd.allreduce_async(tensor, **arguments))


def in_place(tensor: torch.Tensor, **arguments: Any) -> torch.Tensor:
    result = hvd.allreduce_(tensor, **arguments)
    assert result is tensor
    return result


def asynchronous_in_place(tensor: torch.Tensor, **arguments: Any) -> torch.Tensor:
    result = hvd.synchronize(hvd.allreduce_async_(tensor, **arguments))
    assert result is tensor
    return result


FORMS = (blocking, asynchronous, in_place, asynchronous_in_place)
REDUCTIONS: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
    "Sum": total,
    "Min": lambda tensors: functools.reduce(torch.minimum, tensors),
    "Max": lambda tensors: functools.reduce(torch.maximum, tensors),
    "Product": lambda tensors: functools.reduce(operator.mul, tensors),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sum_is_exact_in_every_form_type_and_shape(form: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    for shape in SHAPES:
        inputs = of_all(shape, dtype)
        own = inputs[hvd.rank()].clone()
        result = form(own, op=hvd.Sum)
        assert_same(result, total(inputs))
        if form in (blocking, asynchronous):
            assert_same(own, inputs[hvd.rank()])
            assert own.numel() == 0 or result.data_ptr() != own.data_ptr()


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_min_max_and_product(op: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        inputs = of_all(shape, dtype, op)
        if op == "Product" and dtype in FLOATS:
            inputs = [tensor.clamp(-4, 4) for tensor in inputs]  # 64 at most: exact in bfloat16
        assert_same(hvd.allreduce(inputs[hvd.rank()], op=getattr(hvd, op)), REDUCTIONS[op](inputs))


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_min_and_max_of_bools(op: str) -> None:
    inputs = of_all((17, 2), torch.bool)
    expected = functools.reduce(torch.logical_and if op == "Min" else torch.logical_or, inputs)
    assert_same(hvd.allreduce(inputs[hvd.rank()], op=getattr(hvd, op)), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_average_of_integers_is_truncated_toward_zero(dtype: torch.dtype) -> None:
    inputs = of_all((17, 3), dtype, low=-20)
    inputs = [tensor.clamp(max=20) for tensor in inputs]
    wide = total([tensor.double() for tensor in inputs]) / hvd.size()
    assert_same(hvd.allreduce(inputs[hvd.rank()]), wide.trunc().to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_average_of_floats(dtype: torch.dtype) -> None:
    inputs = of_all((17, 3), dtype)
    result = hvd.allreduce(inputs[hvd.rank()])
    assert result.dtype == dtype
    torch.testing.assert_close(result, (total([tensor.double() for tensor in inputs]) / hvd.size()).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_average_of_equal_tensors_is_the_tensor(dtype: torch.dtype) -> None:
    same = of_rank(0, (17, 17), dtype, "equal")
    assert_same(hvd.allreduce(same), same)


def test_integers_wrap_around_instead_of_saturating() -> None:
    result = hvd.allreduce(torch.tensor([100, -100], dtype=torch.int8), op=hvd.Sum)
    assert_same(result, total([torch.tensor([100, -100], dtype=torch.int8)] * hvd.size()))
    result = hvd.allreduce(torch.tensor([200], dtype=torch.uint8), op=hvd.Sum)
    assert_same(result, total([torch.tensor([200], dtype=torch.uint8)] * hvd.size()))
    large = torch.tensor([2**62, -(2**62)])
    assert_same(hvd.allreduce(large, op=hvd.Sum), total([large] * hvd.size()))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, *FLOATS])
@pytest.mark.parametrize("factor", [0.317, 0.5, 2.0])
def test_factors_apply_before_and_after_the_sum(dtype: torch.dtype, factor: float) -> None:
    inputs = of_all((17, 5), dtype, "scale")
    own = inputs[hvd.rank()]
    before = hvd.allreduce(own, op=hvd.Sum, prescale_factor=factor)
    after = hvd.allreduce(own, op=hvd.Sum, postscale_factor=factor)
    both = hvd.allreduce(own, op=hvd.Sum, prescale_factor=factor, postscale_factor=3.0)
    assert_same(before, total([scaled(tensor, factor) for tensor in inputs]))
    assert_same(after, scaled(total(inputs), factor))
    assert_same(both, scaled(total([scaled(tensor, factor) for tensor in inputs]), 3.0))
    assert_same(own, inputs[hvd.rank()])


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_factors_apply_to_min_and_max_too(op: str) -> None:
    inputs = of_all((9,), torch.float32, op)
    result = hvd.allreduce(inputs[hvd.rank()], op=getattr(hvd, op), prescale_factor=0.5, postscale_factor=4.0)
    assert_same(result, REDUCTIONS[op]([tensor * 0.5 for tensor in inputs]) * 4.0)


def test_a_batch_of_all_types_runs_asynchronously() -> None:
    cases = [(dtype, shape) for dtype in NUMBERS for shape in SHAPES[:3]]
    handles, polled = [], []
    for index, (dtype, shape) in enumerate(cases):
        own = of_rank(hvd.rank(), shape, dtype, f"batch{index}")
        handles.append(hvd.allreduce_async(own, name=f"batch{index}", op=hvd.Sum))
        polled.append(hvd.poll(handles[-1]))
    if hvd.size() > 1:
        assert not all(polled)
    for index, (dtype, shape) in enumerate(cases):
        while not hvd.poll(handles[index]):
            pass
        assert_same(hvd.synchronize(handles[index]), total(of_all(shape, dtype, f"batch{index}")))


def test_ranks_may_submit_in_different_orders() -> None:
    order = list(range(40))
    if hvd.rank() % 2:
        order.reverse()
    handles = {i: hvd.allreduce_async(torch.full((i + 1,), float(i)), name=f"order{i}", op=hvd.Sum) for i in order}
    for i in range(40):
        assert_same(hvd.synchronize(handles[i]), torch.full((i + 1,), float(i * hvd.size())))


def test_a_name_can_be_used_again_and_again() -> None:
    for step in range(50):
        value = torch.full((3,), float(step + hvd.rank()))
        expected = torch.full((3,), float(sum(step + rank for rank in range(hvd.size()))))
        assert_same(hvd.allreduce(value, name="again", op=hvd.Sum), expected)


def test_a_name_can_change_its_shape_type_and_reduction() -> None:
    for _ in range(2):
        for shape, dtype in (((3,), torch.float32), ((4, 2), torch.float32), ((3,), torch.int64)):
            inputs = of_all(shape, dtype, "change")
            assert_same(hvd.allreduce(inputs[hvd.rank()], name="change", op=hvd.Sum), total(inputs))
            assert_same(hvd.allreduce(inputs[hvd.rank()], name="change", op=hvd.Max), REDUCTIONS["Max"](inputs))


@pytest.mark.parametrize("name", ["long " * 100, "größe/層 1", "a.b/c:d"])
def test_unusual_names(name: str) -> None:
    assert hvd.allreduce(torch.ones(1), name=name, op=hvd.Sum).item() == hvd.size()


@pytest.mark.skipif(not READS, reason="this torch does not let the core read tensors")
def test_the_core_reads_small_tensors_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_asked(*_: object) -> None:
        raise AssertionError("Python was asked for the tensor")

    monkeypatch.setattr(core, "enqueue", not_asked)
    monkeypatch.setattr(core, "enqueue_group", not_asked)
    x = torch.full((3,), 2.0)
    expected = torch.full((3,), 2.0 * hvd.size())
    assert_same(hvd.allreduce(x, op=hvd.Sum), expected)
    assert_same(hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum)), expected)
    assert_same(hvd.broadcast(x, 0), x)
    assert torch.equal(x, torch.full((3,), 2.0))
    hvd.grouped_allreduce_([x], op=hvd.Sum)
    hvd.allreduce_(x, op=hvd.Sum, prescale_factor=1 / hvd.size(), process_set=hvd.global_process_set)
    assert_same(x, expected)


def test_large_tensors() -> None:
    count = 3_000_017
    own = torch.arange(count, dtype=torch.float32).remainder(1000) + hvd.rank()
    expected = torch.arange(count, dtype=torch.float32).remainder(1000) * hvd.size() + sum(range(hvd.size()))
    assert_same(hvd.allreduce(own, op=hvd.Sum), expected)


def test_parameters_and_views_can_be_reduced_in_place() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 3))
    assert hvd.allreduce_(parameter, op=hvd.Sum) is parameter
    assert torch.equal(parameter.detach(), torch.full((4, 3), float(hvd.size())))
    base = torch.zeros(4, 3)
    hvd.allreduce_(base[1:3].fill_(1), op=hvd.Sum)
    assert base.sum().item() == 6 * hvd.size()


# Errors


@pytest.mark.usefixtures("several_ranks")
def test_a_name_that_is_pending_is_refused_at_once() -> None:
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(2), name="twice", op=hvd.Sum)
    assert_same(hvd.synchronize(first), torch.full((2,), float(hvd.size())))


@pytest.mark.usefixtures("several_ranks")
def test_an_error_of_one_name_leaves_the_others_alone() -> None:
    good = [hvd.allreduce_async(torch.ones(3), name=f"good{i}", op=hvd.Sum) for i in range(5)]
    bad = hvd.allreduce_async(torch.ones(hvd.rank() + 1), name="bad", op=hvd.Sum)
    for handle in good:
        assert_same(hvd.synchronize(handle), torch.full((3,), float(hvd.size())))
    with pytest.raises(hvd.HorovodInternalError, match="shape"):
        hvd.synchronize(bad)


def test_unknown_process_sets_are_refused() -> None:
    unknown = hvd.ProcessSet([0])
    unknown.process_set_id = 4711
    for call in (hvd.allreduce, hvd.allgather, functools.partial(hvd.broadcast, root_rank=0)):
        with pytest.raises(ValueError, match="4711"):
            call(torch.ones(1), process_set=unknown)
    assert_usable()
