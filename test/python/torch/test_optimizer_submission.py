"""When DistributedOptimizer submits which gradient, and under what name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from small_net import backward, net, sent, sent_names, wrap


def test_each_gradient_is_submitted_during_backward(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model)
    backward(model)
    names = sorted(sent_names(fake_pair.core))
    assert names == ["allreduce.0.bias", "allreduce.0.weight", "allreduce.2.bias", "allreduce.2.weight"]
    assert all(c.data_ptr == c.output_ptr for c in sent(fake_pair.core))
    optimizer.step()
    assert len(sent(fake_pair.core)) == 4


def test_without_names_positions_are_used(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, named_parameters=None)
    assert list(optimizer._parameter_names.values()) == [f"allreduce.noname.0.{i}" for i in range(4)]


def test_a_single_rank_submits_nothing(fake: Any) -> None:
    model = net()
    optimizer = wrap(fake.hvd, model)
    backward(model)
    optimizer.zero_grad()  # nothing is in flight that it could disturb
    backward(model)
    optimizer.step()
    assert fake.core.calls == []


@pytest.mark.parametrize("elastic", ["1", "true"])
def test_a_single_elastic_rank_is_prepared_for_others(fake: Any, monkeypatch: pytest.MonkeyPatch, elastic: str) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    model = net()
    optimizer = wrap(fake.hvd, model)
    backward(model)
    optimizer.step()
    assert len(fake.core.calls) == 4


def test_parameters_that_backward_missed_are_submitted_as_zeros(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    fake_pair.core.calls.clear()
    model[0](torch.ones(1, 3)).sum().backward()
    assert sorted(sent_names(fake_pair.core)) == ["allreduce.0.bias", "allreduce.0.weight"]
    optimizer.step()
    assert sorted(sent_names(fake_pair.core))[2:] == ["allreduce.2.bias", "allreduce.2.weight"]
    assert model[2].weight.grad is None  # the other rank of the fake had none either


def test_gradients_travel_at_the_last_pass_of_a_step(fake_pair: Any) -> None:
    model, twin = net(), net()
    optimizer = wrap(fake_pair.hvd, model, backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    backward(model)
    assert sent(fake_pair.core) == []
    backward(model)
    assert len(sent(fake_pair.core)) == 4
    backward(twin)
    backward(twin)
    optimizer.synchronize()
    assert torch.equal(model[0].weight.grad, twin[0].weight.grad)  # the sum, not divided by the passes


def test_more_passes_than_announced_are_an_error(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        backward(model)
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    backward(model)
    backward(model)
    optimizer.step()
    with pytest.raises(ValueError, match="got 0"):
        optimizer.set_backward_passes_per_step(0)


def test_a_step_after_fewer_passes_submits_what_there_is(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, backward_passes_per_step=3)
    backward(model)
    optimizer.step()
    assert len(sent(fake_pair.core)) == 4


def test_the_predivide_factor_is_split_around_the_sum(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model, gradient_predivide_factor=4.0)
    backward(model)
    optimizer.step()
    assert {(c.reduce_op, c.prescale, c.postscale) for c in sent(fake_pair.core)} == {(hvd.Average, 0.25, 4.0)}


def test_the_predivide_factor_applies_to_groups_too(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, gradient_predivide_factor=4.0, groups=2)
    fake_pair.core.calls.clear()
    backward(model)
    assert {(c.prescale, c.postscale) for c in sent(fake_pair.core)} == {(0.25, 4.0)}
    optimizer.step()


def test_compressed_gradients_come_back_in_their_own_type(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model, compression=hvd.Compression.fp16)
    backward(model)
    expected = model[0].weight.grad.half().float()
    grad = model[0].weight.grad
    optimizer.synchronize()
    assert model[0].weight.grad is grad
    assert torch.equal(grad, expected)


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_buffers_of_compressed_gradients_are_kept(fake_pair: Any, compression: str) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model, compression=getattr(hvd.Compression, compression))
    buffers = []
    for _ in range(3):
        optimizer.zero_grad()
        fake_pair.core.calls.clear()
        backward(model)
        expected = model[0].weight.grad.to(hvd.Compression.__dict__[compression].wire_type).float()
        optimizer.synchronize()
        assert torch.equal(model[0].weight.grad, expected)
        buffers.append({call.name: (call.data_ptr, call.dtype) for call in sent(fake_pair.core)})
        with optimizer.skip_synchronize():
            optimizer.step()
    assert buffers[0] == buffers[1] == buffers[2]


def test_gradients_with_other_strides_are_reduced(fake_pair: Any) -> None:
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    optimizer = wrap(fake_pair.hvd, model)
    model(torch.ones(1, 2, 5, 5).to(memory_format=torch.channels_last)).square().sum().backward()
    expected = model.weight.grad.clone()
    assert not model.weight.grad.is_contiguous()
    optimizer.synchronize()
    assert torch.equal(model.weight.grad, expected)


# Groups


def test_a_group_travels_when_all_its_members_are_ready(fake_pair: Any) -> None:
    model = net()
    first, last = list(model[0].parameters()), list(model[2].parameters())
    optimizer = wrap(fake_pair.hvd, model, groups=[[first[0], last[0]]])
    backward(model)
    names = sent_names(fake_pair.core)
    assert sorted(names) == [
        "allreduce.0.bias",
        "allreduce.2.bias",
        "grouped_allreduce.0.weight_1of2",
        "grouped_allreduce.0.weight_2of2",
    ]
    optimizer.step()


def test_a_group_that_backward_reached_in_part_travels_at_the_step(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, groups=[list(model.parameters())])
    model[0](torch.ones(1, 3)).sum().backward()
    assert sent(fake_pair.core) == []
    optimizer.step()
    assert len(sent(fake_pair.core)) == 4


def test_a_number_of_groups_cuts_even_chunks(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, groups=3)
    fake_pair.core.calls.clear()
    backward(model)
    optimizer.step()
    grouped = [name for name in sent_names(fake_pair.core) if name.startswith("grouped")]
    assert grouped == ["grouped_allreduce.0.weight_1of2", "grouped_allreduce.0.weight_2of2"]
    assert len(sent_names(fake_pair.core)) == 4


def test_frozen_parameters_are_left_out_of_groups(fake_pair: Any) -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    optimizer = wrap(fake_pair.hvd, model, groups=[list(model.parameters())])
    backward(model)
    assert len(sent(fake_pair.core)) == 3
    optimizer.step()
