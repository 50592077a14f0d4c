"""What may change after an optimizer is wrapped: its parameters, their shapes, its state, its groups."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch import _distributed_optimizer
from training import assert_all_ranks_hold, assert_close, batch, loss, net, wrap


class Two(nn.Module):
    """Two layers, of which the second may come later."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(4, 3).double()
        self.second = nn.Linear(3, 2).double()

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(data))


@pytest.mark.parametrize("options", [{}, {"op": hvd.Adasum}], ids=["Average", "Adasum"])
def test_parameters_added_later_are_reduced_also_when_their_names_were_given(options: dict[str, Any]) -> None:
    model = Two()
    optimizer = wrap(model, torch.optim.SGD(model.first.parameters(), lr=0.1), **options)
    optimizer.add_param_group({"params": model.second.parameters(), "lr": 0.05})
    for step in range(3):
        optimizer.zero_grad()
        model(batch(hvd.rank(), step)).square().mean().backward()
        optimizer.step()
    assert optimizer._parameter_names[model.second.weight] == "second.weight"
    assert_all_ranks_hold(model)


WAYS: dict[str, Any] = {
    "through the wrapped one": lambda inner, outer, layer: inner.add_param_group({"params": layer.parameters()}),
    "into a list": lambda inner, outer, layer: outer.param_groups[0]["params"].extend(layer.parameters()),
    "as a new list": lambda inner, outer, layer: outer.param_groups[0].update(params=list(layer.parameters())),
}


@pytest.mark.parametrize("options", [{}, {"op": hvd.Adasum}, {"synchronize_in_backward": True}], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("named", [True, False])
def test_parameters_are_reduced_however_they_came(way: str, options: dict[str, Any], named: bool) -> None:
    model = Two()
    inner = torch.optim.SGD(model.first.parameters(), lr=0.1)
    names = {"named_parameters": model.named_parameters()} if named else {}
    optimizer = hvd.DistributedOptimizer(inner, **names, **options)
    for step in range(3):
        if step == 1:
            WAYS[way](inner, optimizer, model.second)
        optimizer.zero_grad()
        model(batch(hvd.rank(), step)).square().mean().backward()
        optimizer.step()
    assert_all_ranks_hold(model)


def test_parameters_that_come_after_backward_has_reduced_the_others_are_refused() -> None:
    model = Two()
    optimizer = wrap(model, torch.optim.SGD(model.first.parameters(), lr=0.1), synchronize_in_backward=True)
    model(batch(hvd.rank(), 0)).square().mean().backward()
    optimizer.param_groups[0]["params"].extend(model.second.parameters())
    if hvd.size() > 1:
        with pytest.raises(RuntimeError, match="after adding parameters, before"):
            optimizer.step()
    optimizer.zero_grad()
    model(batch(hvd.rank(), 0)).square().mean().backward()
    optimizer.step()
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_gradients_of_a_parameter_whose_shape_changed_are_whole(compression: str) -> None:
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        named_parameters=[("p", parameter)],
        compression=getattr(hvd.Compression, compression),
        op=hvd.Sum,
    )
    for length in (4, 9, 3, 6):
        # Guards on both sides, of which a reduction with another length would touch one.
        memory = torch.full((length + 2,), 7.0)
        parameter.grad = None
        parameter.data = torch.zeros(length)
        parameter.grad = memory[1:-1].zero_()
        (parameter * (torch.arange(length) + 1.0)).sum().backward()
        optimizer.synchronize()
        assert torch.equal(parameter.grad, hvd.size() * (torch.arange(length) + 1.0))
        assert memory[0] == memory[-1] == 7.0
        with optimizer.skip_synchronize():
            optimizer.step()


@pytest.mark.parametrize("options", [{}, {"op": hvd.Adasum}], ids=["Average", "Adasum"])
def test_what_forgets_operations_waits_for_them(options: dict[str, Any]) -> None:
    """Ranks that began different parts forget them together; the names are free afterwards."""
    model = nn.ModuleList(nn.Linear(4, 3) for _ in range(2)).double()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **options)
    saved = copy.deepcopy(optimizer.state_dict())
    forgetting = [
        lambda: optimizer.load_state_dict(saved),
        lambda: optimizer.set_backward_passes_per_step(1),
    ]
    for step in range(6):
        model[(hvd.rank() + step) % 2](batch(hvd.rank(), step)).square().mean().backward()
        forgetting[step % 2]()
        optimizer.zero_grad()
        sum(part(batch(hvd.rank(), step)).square().mean() for part in model).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_all_ranks_hold(model)


class Clipped(torch.optim.SGD):
    """An optimizer of a user's own, with an option that its groups do not hold."""

    def __init__(self, params: Any, lr: float, clip: float = 1.0) -> None:
        super().__init__(params, lr=lr, momentum=0.9)
        self.clip = clip

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.clamp_(-self.clip, self.clip)
        return super().step(closure)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])
def test_wrapping_takes_over_the_whole_object(op: int) -> None:
    """Options of the constructor, hooks, and the state that was loaded or gathered."""
    model = net()
    inner = Clipped(model.parameters(), 0.1, clip=0.5)
    steps: list[Any] = []
    inner.register_step_post_hook(lambda optimizer, args, kwargs: steps.append(optimizer))
    loss(model, batch(0, 0)).backward()
    inner.step()
    optimizer = wrap(model, inner, op=op)
    assert optimizer.clip == 0.5
    momentum = optimizer.state[model[0].weight]["momentum_buffer"].clone()
    assert momentum.abs().sum() > 0
    optimizer.zero_grad()
    loss(model, batch(hvd.rank(), 1)).backward()
    optimizer.step()
    assert steps[0] is inner
    assert steps[-1] is optimizer
    assert not torch.equal(optimizer.state[model[0].weight]["momentum_buffer"], momentum)
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])
def test_a_scheduler_made_before_wrapping_goes_on_after_loading(op: int) -> None:
    model, twin = net(), net()
    inner = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1.0)
    optimizer = wrap(model, inner, op=op)
    trained = wrap(twin, torch.optim.SGD(twin.parameters(), lr=0.2, momentum=0.9), op=op)
    loss(twin, batch(hvd.rank(), 0)).backward()
    trained.step()
    groups = list(optimizer.param_groups)
    optimizer.load_state_dict(copy.deepcopy(trained.state_dict()))
    assert all(one is other for one, other in zip(groups, optimizer.param_groups, strict=True))
    scheduler.base_lrs = [0.2]
    model.load_state_dict(twin.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(1, 3):
            for using, own in ((optimizer, model), (trained, twin)):
                using.zero_grad()
                loss(own, batch(hvd.rank(), step)).backward()
                using.step()
            scheduler.step()
            assert optimizer.param_groups[0]["lr"] == 0.2
    assert_close(model, twin, rtol=0.0, atol=0.0)


def test_groups_cut_in_a_world_of_one_rank_need_no_other_in_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank may unpickle such an optimizer alone, and all of them train."""
    model = net()
    with monkeypatch.context() as alone:
        alone.setattr(_distributed_optimizer, "is_distributed", lambda _: False)
        saved = pickle.dumps((model, wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), groups=2)))
    with monkeypatch.context() as silent:
        silent.setattr(_distributed_optimizer, "broadcast_object", lambda *_: pytest.fail("asks other ranks"))
        model, optimizer = pickle.loads(saved)
    for step in range(2):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
    assert [len(group) for group in optimizer._settings.groups] == [2, 2]
    assert_all_ranks_hold(model)
