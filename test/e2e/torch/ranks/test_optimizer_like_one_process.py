"""Training equals one process that sees all batches, also at the start and where parameters are not used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod._common.native import core
from training import assert_all_ranks_hold, assert_close, batch, wrap

SPARSE = ("SparseAdam",)
APART = ("Optimizer", "LBFGS")  # LBFGS asks for a closure and has tests of its own
CLASSES = sorted(
    name
    for name, value in vars(torch.optim).items()
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name not in (*APART, *SPARSE)
)


class Parts(nn.Module):
    """Matrices that are used by all ranks, by one rank, at times, from some step on, never; a frozen one; one frozen later."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        names = ("always", "one_rank", "at_times", "later", "never", "frozen", "frozen_later")
        self.parts = nn.ModuleDict({name: nn.Linear(4, 3, bias=False) for name in names}).double()
        self.parts["frozen"].requires_grad_(False)

    def forward(self, data: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        used = ["always", "frozen", "frozen_later"]
        used += ["one_rank"] if rank == hvd.size() - 1 else []
        used += ["at_times"] if (rank + step) % 3 == 0 else []
        used += ["later"] if step >= 2 else []
        return torch.stack([self.parts[name](data).tanh() for name in used]).sum(0)


def losses(model: Parts, rank: int, step: int) -> torch.Tensor:
    data = batch(rank, step)
    return (model(data, rank, step) - data[:, :3]).square().mean()


def make(name: str, model: nn.Module) -> torch.optim.Optimizer:
    chosen = getattr(torch.optim, name)
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9}
    known = inspect.signature(chosen).parameters
    return chosen(model.parameters(), **{key: value for key, value in options.items() if key in known})


def none_grads(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 2}, {"synchronize_in_backward": True}, {"gradient_as_bucket_view": True}],
    ids=["", "groups", "backward", "buckets"],
)
@pytest.mark.parametrize("name", CLASSES)
def test_each_optimizer_trains_as_in_one_process(name: str, options: dict[str, Any]) -> None:
    model, twin = Parts(), Parts()
    optimizer, twin_optimizer = wrap(model, make(name, model), **options), make(name, twin)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(5):
        for using, own in ((optimizer, model), (twin_optimizer, twin)):
            using.zero_grad()
            own.parts["frozen_later"].requires_grad_(step < 3)
        losses(model, hvd.rank(), step).backward()
        (sum(losses(twin, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
        optimizer.step()
        twin_optimizer.step()
        assert none_grads(model) == none_grads(twin)
        assert_close(model, twin, rtol=1e-8, atol=1e-10)
    assert "parts.never.weight" in none_grads(model)
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_adam_trains_as_in_one_process(as_dense: bool) -> None:
    """With embeddings that one rank uses, that ranks use later, and that nobody uses."""

    def embeddings() -> nn.ModuleList:
        torch.manual_seed(3)
        return nn.ModuleList(nn.Embedding(5, 2, sparse=True) for _ in range(4)).double()

    def loss_of(model: nn.ModuleList, rank: int, step: int) -> torch.Tensor:
        used = [0] + ([1] if rank == 0 else []) + ([2] if step == 2 else [])
        return sum(model[i](torch.tensor([rank % 5, (rank + step) % 5])).square().sum() for i in used)

    model, twin = embeddings(), embeddings()
    optimizer = wrap(model, torch.optim.SparseAdam(model.parameters(), lr=0.1), sparse_as_dense=as_dense)
    twin_optimizer = torch.optim.SparseAdam(twin.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(4):
        optimizer.zero_grad()
        twin_optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        (sum(loss_of(twin, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
        optimizer.step()
        twin_optimizer.step()
        assert none_grads(model) == none_grads(twin)
        if not as_dense:  # rows that are zero in a dense gradient need not come back
            assert_close(model, twin, rtol=1e-8, atol=1e-10)
    assert_all_ranks_hold(model)


def submissions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all that is submitted from now on, by optimizers that are made from now on."""
    from horovod.torch import _gradients, _presence, _sender, _session, _tensors

    names: list[str] = []

    class Noted(core.RepeatedAllreduce):
        def __init__(self, name: str, *rest: Any) -> None:
            super().__init__(name, *rest)
            self.name = name

        def start(self, *arguments: Any) -> None:
            names.append(self.name)
            super().start(*arguments)

    def noted(submit: Any, name_of: Callable[[Any], str]) -> Any:
        def noting(*arguments: Any) -> Any:
            handle = submit(*arguments)
            if handle is not None:
                names.append(name_of(arguments))
            return handle

        return noting

    for module in (_sender, _presence):
        monkeypatch.setattr(module, "RepeatedAllreduce", Noted)
    monkeypatch.setattr(core, "enqueue", noted(core.enqueue, lambda arguments: arguments[0][1]))
    monkeypatch.setattr(_gradients, "start_tensor", _tensors._start_tensor)  # in Python, which calls start()
    monkeypatch.setattr(_session, "enqueue_tensor", noted(_session.enqueue_tensor, lambda arguments: arguments[1]))
    return names


@pytest.mark.usefixtures("several_ranks")
def test_what_is_never_used_costs_no_message_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.ModuleDict({name: nn.Linear(4, 3, bias=False) for name in ("used", "never")}).double()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    names = submissions(monkeypatch)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        optimizer.zero_grad()
        model["used"](batch(hvd.rank(), step)).square().mean().backward()
        optimizer.step()
        everything = ["allreduce.used.weight", "allreduce.never.weight.presence"]
        assert names == everything + (["allreduce.never.weight.parameters"] if step == 0 else [])
        names.clear()


@contextmanager
def default_of_new_tensors(default: Any) -> Iterator[None]:
    """torch.tensor() and the like make tensors of this type, or on this device."""
    before = torch.get_default_dtype()
    if isinstance(default, torch.dtype):
        torch.set_default_dtype(default)
    else:
        torch.set_default_device(default)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


def adam_needs_a_default_device_with_memory() -> bool:
    """In several releases of torch, 2.1 and 2.10 among them, Adam counts its steps there."""
    parameter = torch.zeros(1, requires_grad=True)
    parameter.grad = torch.zeros(1)
    with default_of_new_tensors("meta"):
        try:
            torch.optim.Adam([parameter]).step()
        except RuntimeError:
            return True
    return False


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16, "meta"], ids=str)
def test_the_default_type_and_device_of_a_program_change_nothing(default: Any) -> None:
    """ "meta" stands for "cuda": what is made there has no memory that could be sent."""
    name = "RMSprop" if default == "meta" and adam_needs_a_default_device_with_memory() else "Adam"
    for options in ({}, {"gradient_as_bucket_view": True}):
        model, twin = Parts(), Parts()
        optimizer, twin_optimizer = wrap(model, make(name, model), **options), make(name, twin)
        for step in range(3):
            optimizer.zero_grad()
            twin_optimizer.zero_grad()
            own = losses(model, hvd.rank(), step)
            with default_of_new_tensors(default):
                own.backward()
                optimizer.step()
            (sum(losses(twin, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
            twin_optimizer.step()
            assert none_grads(model) == none_grads(twin)
            assert_close(model, twin, rtol=1e-8, atol=1e-10)


def test_objects_splits_and_sparse_tensors_travel_whatever_the_default_device_is() -> None:
    rows = torch.arange(float(2 * hvd.size()))
    sparse = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4,), check_invariants=True)
    with default_of_new_tensors("meta"):
        assert hvd.broadcast_object({"rank": hvd.rank()}, 0) == {"rank": 0}
        assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
        assert hvd.alltoall(rows, [2] * hvd.size())[1].tolist() == [2] * hvd.size()
        summed = hvd.sparse_allreduce_async(sparse, None, hvd.Average)()
    assert summed.coalesce().to_dense().tolist() == [1.0, 2.0, 0.0, 0.0]


def test_a_gradient_that_autograd_leaves_negated_is_reduced_with_its_sign() -> None:
    """As for a parameter of one element of which a complex tensor is made: its memory holds the negated gradient."""
    part = nn.Parameter(torch.ones(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([part], lr=1.0))
    for step in range(3):
        optimizer.zero_grad()
        torch.view_as_real(torch.complex(part.detach(), part).conj() * (1.0 + hvd.rank())).sum().backward()
        assert part.grad.is_neg()
        optimizer.step()
        assert part.item() == pytest.approx(1 + (step + 1) * (hvd.size() + 1) / 2)
    with pytest.raises(ValueError, match="resolve_neg"):
        hvd.allreduce(part.grad)
