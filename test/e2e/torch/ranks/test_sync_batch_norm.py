"""SyncBatchNorm equals BatchNorm on the concatenated batch of all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import halves
from world import assert_usable

ORDINARY = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
CHANNELS = 3


def batch(rank: int, shape: tuple[int, ...], rows: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    data = torch.randn(rows, CHANNELS, *shape, generator=generator, dtype=torch.float64)
    return (data * (1 + rank) + 0.5 * rank).to(dtype)


def own_part(whole: torch.Tensor, rows: list[int]) -> torch.Tensor:
    begin = sum(rows[: hvd.rank()])
    return whole[begin : begin + rows[hvd.rank()]]


def pair(dimensions: int, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[nn.Module, nn.Module]:
    """One of each with the same weights, which are not all ones."""
    synced = hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
    ordinary = ORDINARY[dimensions](CHANNELS, **options).to(dtype)
    if synced.weight is not None:
        with torch.no_grad():
            synced.weight.copy_(torch.tensor([0.5, 1.5, -2.0]))
            synced.bias.copy_(torch.tensor([1.0, 0.0, -1.0]))
        ordinary.load_state_dict(synced.state_dict())
    return synced, ordinary


def step(norm: nn.Module, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output, and gradient of the input under a loss in which every element has another weight."""
    data = data.clone().requires_grad_()
    output = norm(data)
    (output.square() * output.detach().cos()).sum().backward()
    return output.detach(), data.grad


def assert_equal(rows: list[int], shape: tuple[int, ...], tolerance: float, dtype: torch.dtype, **options: Any) -> None:
    synced, ordinary = pair(2 + len(shape), dtype, **options)
    close = {"rtol": tolerance, "atol": tolerance}
    for repeat in range(2):
        whole = torch.cat([batch(rank + 10 * repeat, shape, rows[rank], dtype) for rank in range(hvd.size())])
        wanted, wanted_grad = step(ordinary, whole)
        got, grad = step(synced, own_part(whole, rows))
        torch.testing.assert_close(got, own_part(wanted, rows), **close)
        torch.testing.assert_close(grad, own_part(wanted_grad, rows), **close)
    for (name, value), other in zip(synced.state_dict().items(), ordinary.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, msg=lambda text, name=name: f"{name}: {text}", **close)
    for parameter, other in zip(synced.parameters(), ordinary.parameters(), strict=True):
        # Of this rank's rows alone; the sum over ranks is that of the whole batch.
        torch.testing.assert_close(hvd.allreduce(parameter.grad, op=hvd.Sum), other.grad, **close)


@pytest.mark.parametrize("shape", [(), (7,), (4, 5), (2, 3, 2)])
@pytest.mark.parametrize("even", [True, False])
def test_training_equals_the_concatenated_batch(shape: tuple[int, ...], even: bool) -> None:
    rows = [4] * hvd.size() if even else [3 + 2 * rank for rank in range(hvd.size())]
    assert_equal(rows, shape, 1e-12, torch.float64)


def test_in_single_precision_it_agrees_to_a_millionth() -> None:
    assert_equal([8 + rank for rank in range(hvd.size())], (6,), 5e-6, torch.float32)


@pytest.mark.parametrize(
    "options", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.5, "eps": 1e-2}]
)
def test_options(options: dict[str, Any]) -> None:
    assert_equal([4] * hvd.size(), (5,), 1e-12, torch.float64, **options)


@pytest.mark.usefixtures("several_ranks")
def test_a_rank_without_rows_takes_part() -> None:
    rows = [4] * hvd.size()
    rows[0] = 0
    assert_equal(rows, (5,), 1e-12, torch.float64)


def test_large_means_lose_no_digits() -> None:
    synced, ordinary = pair(2)
    whole = torch.cat([batch(rank, (), 6) for rank in range(hvd.size())]) + 1e6
    torch.testing.assert_close(
        synced(own_part(whole, [6] * hvd.size())), own_part(ordinary(whole), [6] * hvd.size()), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("dtype", halves())
@pytest.mark.parametrize("whole_model", [False, True])
def test_half_precision_inputs_keep_their_type(dtype: torch.dtype, whole_model: bool) -> None:
    synced, ordinary = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    if whole_model:
        synced.to(dtype)
    whole = torch.cat([batch(rank, (), 6, dtype) for rank in range(hvd.size())])
    mine = own_part(whole, [6] * hvd.size()).clone().requires_grad_()
    output = synced(mine)
    output.float().square().sum().backward()
    assert output.dtype == mine.grad.dtype == dtype
    assert synced.weight.grad.dtype == synced.weight.dtype
    wanted = own_part(ordinary(whole.float()), [6] * hvd.size())
    torch.testing.assert_close(output.float(), wanted, rtol=2e-2, atol=2e-2)


def test_evaluation_uses_the_running_statistics_alone() -> None:
    synced, ordinary = pair(2)
    synced.running_mean.fill_(2.0)
    ordinary.running_mean.fill_(2.0)
    data = batch(hvd.rank(), (), 2 + hvd.rank())
    if hvd.rank() == 0:  # no other rank takes part
        torch.testing.assert_close(synced.eval()(data), ordinary.eval()(data))
    assert_usable()


def test_evaluation_without_running_statistics_uses_the_batches_of_all_ranks() -> None:
    rows = [3 + rank for rank in range(hvd.size())]
    synced, ordinary = pair(3, track_running_stats=False)
    whole = torch.cat([batch(rank, (5,), rows[rank]) for rank in range(hvd.size())])
    torch.testing.assert_close(synced.eval()(own_part(whole, rows)), own_part(ordinary.eval()(whole), rows))


def test_frozen_weights_and_inputs_that_need_no_gradient() -> None:
    synced, _ = pair(2)
    synced.weight.requires_grad_(False)
    synced(batch(hvd.rank(), (), 4)).square().sum().backward()
    assert synced.weight.grad is None
    assert synced.bias.grad is not None
    assert_usable()


def test_a_network_of_them_trains_like_one_rank() -> None:
    def make(norm: Any) -> nn.Module:
        torch.manual_seed(4)
        layers = [nn.Linear(3, CHANNELS), norm(CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CHANNELS), norm(CHANNELS)]
        return nn.Sequential(*layers).double()

    model, twin = make(hvd.SyncBatchNorm), make(nn.BatchNorm1d)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for round_ in range(5):
        parts = [batch(rank + 7 * round_, (), 6) for rank in range(hvd.size())]
        optimizer.zero_grad()
        (model(parts[hvd.rank()]) - 1).square().mean().backward()
        optimizer.step()
        twin_optimizer.zero_grad()
        (twin(torch.cat(parts)) - 1).square().mean().backward()
        twin_optimizer.step()
    for own, wanted in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)


def test_wrong_inputs_are_refused() -> None:
    norm = hvd.SyncBatchNorm(CHANNELS)
    with pytest.raises(ValueError, match="2 or more dimensions, got 1"):
        norm(torch.ones(CHANNELS))
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="expected 3 channels"):
            norm(torch.ones(2, 4))
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_a_single_value_in_all_is_refused_everywhere() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    assert_usable()


def test_it_is_a_batch_norm_for_others() -> None:
    assert isinstance(hvd.SyncBatchNorm(4), nn.modules.batchnorm._BatchNorm)
    assert "SyncBatchNorm(4, eps=1e-05, momentum=0.1" in repr(hvd.SyncBatchNorm(4))
