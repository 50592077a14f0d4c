"""synchronize, step and zero_grad of DistributedOptimizer, and parameters that come and go."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from small_net import backward, net, sent, sent_names, sgd, wrap


def test_clipping_between_synchronize_and_step_submits_once(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert len(sent(fake_pair.core)) == 4


def test_a_step_that_synchronises_again_warns_exactly_once(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize") as caught:
        optimizer.step()
    assert len(caught) == 1
    assert "optimizer.step() called without optimizer.skip_synchronize()" in str(caught[0].message)
    assert len(sent(fake_pair.core)) == 8


def test_zero_grad_is_forbidden_while_gradients_travel(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    optimizer.zero_grad()
    backward(model)
    with pytest.raises(AssertionError, match="race condition"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert torch.equal(model[0].weight.grad, torch.zeros(4, 3))
    optimizer.zero_grad(set_to_none=True)
    assert model[0].weight.grad is None


def test_a_closure_runs_after_synchronisation(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    seen: list[int] = []

    def closure() -> float:
        seen.append(len(sent(fake_pair.core)))
        return 4.5

    assert optimizer.step(closure) == 4.5
    assert seen == [4]


def test_step_hooks_of_torch_run_once_and_see_reduced_gradients(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    seen: list[bool] = []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append(opt._reducer.begun))
    backward(model)
    optimizer.step()
    assert seen == [False]


def test_schedulers_work_on_the_wrapper(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for expected in (0.05, 0.025):
            backward(model)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_a_failed_reduction_leaves_the_optimizer_usable(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model)
    fake_pair.core.failing["allreduce.0.bias"] = hvd.HorovodInternalError("shapes differ")
    backward(model)
    with pytest.raises(hvd.HorovodInternalError, match="shapes differ"):
        optimizer.step()
    fake_pair.core.failing.clear()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def test_load_state_dict_forgets_what_backward_began(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, sgd(model, momentum=0.9))
    backward(model)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    backward(model)
    optimizer.load_state_dict(saved)
    assert not fake_pair.core.in_flight
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert optimizer.state_dict().keys() == saved.keys()


# Parameters that come and go


def test_parameters_unfrozen_later_are_reduced_from_their_first_step(fake_pair: Any) -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    optimizer.step()
    assert "allreduce.0.weight" not in sent_names(fake_pair.core)
    model[0].weight.requires_grad_(True)
    for step in (1, 2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        assert sent_names(fake_pair.core).count("allreduce.0.weight") == step


def test_parameters_frozen_later_are_submitted_as_zeros(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    for step in (1, 2):
        backward(model)
        optimizer.step()
        assert sent_names(fake_pair.core).count("allreduce.0.weight") == step
        optimizer.zero_grad()
        model[0].weight.requires_grad_(False)
    assert model[0].weight.grad is None


def test_parameters_added_later_are_reduced(fake_pair: Any) -> None:
    model, more = net(), nn.Linear(2, 2, bias=False)
    optimizer = wrap(fake_pair.hvd, model)
    optimizer.add_param_group({"params": more.parameters(), "lr": 0.5})
    assert optimizer._parameter_names[more.weight] == "allreduce.noname.1.0"
    more(model(torch.ones(1, 3))).sum().backward()
    assert "allreduce.allreduce.noname.1.0" in sent_names(fake_pair.core)
    optimizer.step()


def test_two_optimizers_keep_to_their_own_parameters(fake_pair: Any) -> None:
    hvd, generator, critic = fake_pair.hvd, net(), nn.Linear(2, 1)
    first, second = wrap(hvd, generator), wrap(hvd, critic)
    critic(generator(torch.ones(2, 3))).sum().backward()
    second.step()
    with pytest.raises(AssertionError, match="race"):
        first.zero_grad()
    second.zero_grad()
    first.step()
    first.zero_grad()


def test_a_dropped_optimizer_leaves_no_hooks(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model)
    del optimizer
    gc.collect()
    backward(model)
    assert sent(fake_pair.core) == []
    wrap(hvd, model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_reduces_the_copied_parameters_under_the_same_names(
    fake_pair: Any, copied: Callable[[tuple[nn.Module, Any]], tuple[nn.Sequential, Any]]
) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, compression=fake_pair.hvd.Compression.fp16)
    twin_model, twin = copied((model, optimizer))
    assert type(twin) is type(optimizer)
    assert twin._settings == optimizer._settings
    assert twin._parameter_names[twin_model[0].weight] == "0.weight"
    backward(twin_model)
    assert len(sent(fake_pair.core)) == 4
    twin.step()
