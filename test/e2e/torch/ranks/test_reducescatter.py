"""Reducescatter and grouped reducescatter."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd
from world import FLOATS, INTEGERS, NUMBERS, assert_same, assert_usable, of_all, of_rank, scaled, total

SHAPES = ((17,), (12, 17), (5, 17, 3), (1, 4), (2,), (0,), (0, 3), (3, 0))


def own_rows(whole: torch.Tensor) -> torch.Tensor:
    """This rank's share: equal ones, and one row more for the first ranks until none is left."""
    base, more = divmod(whole.shape[0], hvd.size())
    begin = hvd.rank() * base + min(hvd.rank(), more)
    return whole[begin : begin + base + (1 if hvd.rank() < more else 0)]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_each_rank_gets_its_rows_of_the_sum(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        inputs = of_all(shape, dtype, "sum")
        own = inputs[hvd.rank()].clone()
        expected = own_rows(total(inputs))
        assert_same(hvd.reducescatter(own, op=hvd.Sum), expected)
        assert_same(hvd.synchronize(hvd.reducescatter_async(own, op=hvd.Sum)), expected)
        assert_same(own, inputs[hvd.rank()])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_average_of_integers_is_truncated_toward_zero(dtype: torch.dtype) -> None:
    inputs = [tensor.clamp(max=20) for tensor in of_all((17, 3), dtype, low=-20)]
    wide = total([tensor.double() for tensor in inputs]) / hvd.size()
    assert_same(hvd.reducescatter(inputs[hvd.rank()]), own_rows(wide.trunc().to(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_default_is_the_average(dtype: torch.dtype) -> None:
    inputs = of_all((17, 3), dtype, "average")
    result = hvd.reducescatter(inputs[hvd.rank()])
    assert_same(result, hvd.reducescatter(inputs[hvd.rank()], op=hvd.Average))
    wanted = (total([tensor.double() for tensor in inputs]) / hvd.size()).to(dtype)
    torch.testing.assert_close(result, own_rows(wanted))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, *FLOATS])
@pytest.mark.parametrize("where", ["prescale_factor", "postscale_factor"])
def test_factors_are_exact(where: str, dtype: torch.dtype) -> None:
    for index, shape in enumerate(((17,), (7, 5), (40_000, 3))):
        factor = 0.123456789 + 0.2 * index
        inputs = of_all(shape, dtype, f"{where} {index}")
        if hvd.size() == 3:  # the order of adding is free: what is exact is x + x + x
            inputs = inputs[:1] * 3
        result = hvd.reducescatter(inputs[hvd.rank()], op=hvd.Sum, **{where: factor})
        if where == "prescale_factor":
            expected = total([scaled(tensor, factor) for tensor in inputs])
        else:
            expected = scaled(total(inputs), factor)
        if hvd.size() <= 3 or not dtype.is_floating_point:
            assert_same(result, own_rows(expected))
        else:  # another order of adding: a rounding per addition of values below 200
            atol = 200 * hvd.size() * torch.finfo(dtype).eps
            torch.testing.assert_close(result, own_rows(expected), rtol=0.0, atol=atol)


def test_large_tensors_of_uneven_rows() -> None:
    for rows in (300_001, 3):
        shape = (rows, 3) if rows > 3 else (rows, 400_003)
        inputs = of_all(shape, torch.int32, "large")
        assert_same(hvd.reducescatter(inputs[hvd.rank()], op=hvd.Sum), own_rows(total(inputs)))


def test_a_batch_runs_asynchronously_and_fuses() -> None:
    for _ in range(3):
        cases = [(dtype, shape) for dtype in (torch.float32, torch.int64) for shape in ((17, 2), (1,), (5, 3), (2, 9))]
        handles = [
            hvd.reducescatter_async(of_rank(hvd.rank(), shape, dtype, "batch"), name=f"batch.{i}", op=hvd.Sum)
            for i, (dtype, shape) in enumerate(cases)
        ]
        for (dtype, shape), handle in zip(cases, handles, strict=True):
            assert_same(hvd.synchronize(handle), own_rows(total(of_all(shape, dtype, "batch"))))


def test_groups() -> None:
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        for case in ("group", "again"):
            shapes = [(17, 2), (3,), (1, 5), (8,), (0, 2)]
            own = [of_rank(hvd.rank(), shape, torch.float64, case) for shape in shapes]
            expected = [own_rows(total(of_all(shape, torch.float64, case))) * (1.0 / divisor) for shape in shapes]
            for results in (
                hvd.grouped_reducescatter(own, op=op, name="group"),
                hvd.synchronize(hvd.grouped_reducescatter_async(own, op=op)),
            ):
                for result, wanted in zip(results, expected, strict=True):
                    torch.testing.assert_close(result, wanted, rtol=1e-15, atol=1e-15)


def test_a_group_of_several_types_with_factors() -> None:
    own = [of_rank(hvd.rank(), (9, 2), dtype, "mixed") for dtype in (torch.float32, torch.int32, torch.float16)]
    results = hvd.grouped_reducescatter(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    for tensor, result in zip(own, results, strict=True):
        halves = [scaled(other, 0.5) for other in of_all((9, 2), tensor.dtype, "mixed")]
        assert_same(result, own_rows(scaled(total(halves), 3.0)))


def test_compression() -> None:
    inputs = of_all((9, 2), torch.float32, "compressed")
    result = hvd.reducescatter(inputs[hvd.rank()], op=hvd.Sum, compression=hvd.Compression.fp16)
    assert_same(result, own_rows(total(inputs)))
    results = hvd.grouped_reducescatter([inputs[hvd.rank()]], op=hvd.Sum, compression=hvd.Compression.fp16)
    assert_same(results[0], own_rows(total(inputs)))


# Mistakes of one rank: at the call


def test_a_scalar_has_no_rows() -> None:
    for form in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(ValueError, match="dimension"):
            form(torch.tensor(1.0))
    with pytest.raises(ValueError, match="dimension"):
        hvd.grouped_reducescatter([torch.ones(2), torch.tensor(1.0)])
    assert_usable()


@pytest.mark.parametrize("op", ["Adasum", "Min", "Max", "Product"])
def test_other_ops_are_refused_at_the_call(op: str) -> None:
    for form in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
            form(torch.ones(4), op=getattr(hvd, op))
    with pytest.raises(hvd.HorovodInternalError, match="Average and Sum"):
        hvd.grouped_reducescatter_async([torch.ones(4)], op=getattr(hvd, op))
    assert_usable()


def test_what_cannot_be_reduced_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        hvd.reducescatter(torch.ones(4, 3).t())
    with pytest.raises(ValueError, match="bool"):
        hvd.reducescatter(torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="complex64"):
        hvd.reducescatter(torch.ones(4, dtype=torch.complex64))
    assert_usable()


# Gradients


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_the_gradient_is_gathered(op: str) -> None:
    rows = hvd.size() * 2 + 1
    x = torch.ones(rows, 3, requires_grad=True)
    result = hvd.reducescatter(x, op=getattr(hvd, op), prescale_factor=0.5, postscale_factor=3.0)
    (result * (hvd.rank() + 1)).sum().backward()
    owners = [len(own) for own in torch.arange(rows).tensor_split(hvd.size())]
    weights = torch.cat([torch.full((n, 3), float(rank + 1)) for rank, n in enumerate(owners)])
    assert_same(x.grad, weights * 1.5 * (hvd.size() if op == "Sum" else 1))


def test_the_gradient_of_a_group() -> None:
    first = torch.ones(hvd.size(), 2, requires_grad=True)
    second = torch.ones(hvd.size() + 1, requires_grad=True)
    results = hvd.grouped_reducescatter([first, second], op=hvd.Sum)
    (results[0].sum() + 2 * results[1].sum()).backward()
    assert_same(first.grad, torch.full((hvd.size(), 2), float(hvd.size())))
    assert_same(second.grad, torch.full((hvd.size() + 1,), 2.0 * hvd.size()))
