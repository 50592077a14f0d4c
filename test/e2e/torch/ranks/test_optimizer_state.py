"""Broadcast of an optimizer's state and options."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from world import assert_equal_on_all_ranks, assert_same_nest, assert_usable, small_model

Options = dict[str, Any]
OPTIMIZERS: list[tuple[str, Options, Options]] = [
    ("SGD", {"lr": 0.2}, {"lr": 0.1}),
    ("SGD", {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.1}, {"lr": 0.1, "momentum": 0.8}),
    ("SGD", {"lr": 0.2, "momentum": 0.9, "nesterov": True}, {"lr": 0.1, "momentum": 0.9}),
    ("Adam", {"lr": 0.2, "betas": (0.8, 0.95), "amsgrad": True}, {"lr": 0.1}),
    ("AdamW", {"lr": 0.2, "weight_decay": 0.3}, {"lr": 0.1}),
    ("Adamax", {"lr": 0.2}, {"lr": 0.1}),
    ("NAdam", {"lr": 0.2}, {"lr": 0.1}),
    ("RAdam", {"lr": 0.2}, {"lr": 0.1}),
    ("Adadelta", {"lr": 0.2, "rho": 0.8}, {"lr": 0.1}),
    ("Adagrad", {"lr": 0.2, "initial_accumulator_value": 0.5}, {"lr": 0.1}),
    ("RMSprop", {"lr": 0.2, "centered": True, "momentum": 0.5}, {"lr": 0.1}),
    ("Rprop", {"lr": 0.2, "etas": (0.4, 1.3)}, {"lr": 0.1}),
    ("ASGD", {"lr": 0.2}, {"lr": 0.1}),
    ("Adafactor", {"lr": 0.2}, {"lr": 0.1}),
]


def test_every_optimizer_of_torch_is_tested() -> None:
    apart = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}  # Muon takes matrices only, SparseAdam sparse gradients
    classes = {n for n, c in vars(torch.optim).items() if isinstance(c, type) and issubclass(c, torch.optim.Optimizer)}
    assert classes - apart <= {name for name, _, _ in OPTIMIZERS}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step)
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("name", "root_options", "options"), [one for one in OPTIMIZERS if hasattr(torch.optim, one[0])]
)
def test_the_roots_state_and_options_win(name: str, root_options: Options, options: Options, wrapped: bool) -> None:
    """Ranks begin with other parameters, options and amounts of training, and end with the same."""
    is_root = hvd.rank() == 0
    model = small_model(hvd.rank())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = getattr(torch.optim, name)(trained, **(root_options if is_root else options))
    if is_root:
        train(model, optimizer, 3)
    if wrapped:
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=list(model.named_parameters()))
        optimizer.load_state_dict(state)
    before = copy.deepcopy(optimizer.state_dict())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    parameters = copy.deepcopy(model.state_dict())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if is_root:
        assert_same_nest(without_defaults(optimizer.state_dict()), without_defaults(before))
    assert_same_nest(dict(model.state_dict()), dict(parameters))
    assert_equal_on_all_ranks(without_defaults(optimizer.state_dict()))
    assert optimizer.param_groups[0]["lr"] == root_options["lr"]
    # The same state means the same way from here on.
    train(model, optimizer, 2)
    assert_equal_on_all_ranks([p.detach() for p in model.parameters()])


def without_defaults(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict as it is, but of the fresh states those that hold nothing are left out."""
    return {"state": {k: v for k, v in state["state"].items() if v}, "param_groups": state["param_groups"]}


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_fresh_optimizers_stay_fresh(name: str) -> None:
    """The first step after the broadcast is the first one: a trial step before it would change its size."""
    model = small_model(0)
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, weight_decay=0.1, **options)
    before = copy.deepcopy(dict(model.state_dict()))
    model[0].weight.grad = torch.ones_like(model[0].weight)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_same_nest(dict(model.state_dict()), before)
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[0].bias.grad is None
    assert not any(optimizer.state.values())


@pytest.mark.usefixtures("several_ranks")
def test_a_fresh_root_leaves_no_rank_with_a_state() -> None:
    model = small_model(0)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.1)
    if hvd.rank() > 0:
        train(model, optimizer, 2)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not any(optimizer.state.values())


@pytest.mark.usefixtures("several_ranks")
def test_state_that_the_root_does_not_have_is_gone() -> None:
    model = small_model(hvd.rank())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.1, amsgrad=hvd.rank() > 0)
    train(model, optimizer, 2)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_equal_on_all_ranks(optimizer.state_dict())
    assert all("max_exp_avg_sq" not in state for state in optimizer.state.values())


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("sizes", [[1, 1], [1], [3]])  # of the groups of all ranks but the root, which has one of two
def test_an_optimizer_unlike_the_roots_is_refused(sizes: list[int]) -> None:
    is_root = hvd.rank() == 0
    groups = [[nn.Parameter(torch.ones(2)) for _ in range(size)] for size in ([2] if is_root else sizes)]
    optimizer = torch.optim.SGD([{"params": group} for group in groups], lr=0.1)
    if is_root:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    else:
        with pytest.raises(ValueError, match=r"those of the root's \[2\]"):
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_usable()


def test_state_that_is_of_no_parameter_comes_along() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer.state["calls"] = 5 + hvd.rank()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state["calls"] == 5


def test_a_stateless_optimizer_passes_silently() -> None:
    model = small_model(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_usable()


def test_lbfgs_is_refused() -> None:
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(small_model(0).parameters()), root_rank=0)
    assert_usable()


def test_sparse_adam() -> None:
    torch.manual_seed(hvd.rank())
    model = nn.Embedding(6, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == 0:
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_equal_on_all_ranks(optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1
    fresh = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(fresh, root_rank=0)
    assert_equal_on_all_ranks(fresh.state_dict())


def test_sgd_with_sparse_embeddings_of_the_model() -> None:
    model = nn.Sequential(nn.Embedding(6, 3, sparse=True), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    assert_equal_on_all_ranks([p.detach() for p in model.parameters()])


def test_options_keep_the_roots_python_types() -> None:
    parameter = nn.Parameter(torch.ones(2))
    is_root = hvd.rank() == 0
    optimizer = torch.optim.Adam(
        [parameter], lr=1 if is_root else 0.5, betas=(0.5, 0.75) if is_root else [0.1, 0.2], eps=1e-3 if is_root else 1
    )
    optimizer.param_groups[0]["custom"] = "text" if is_root else None
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["custom"]) == (1, (0.5, 0.75), 1e-3, "text")
    assert isinstance(group["lr"], int)
    assert isinstance(group["betas"], tuple)


def test_the_root_may_be_any_rank() -> None:
    root = hvd.size() - 1
    model = small_model(hvd.rank())
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == root:
        train(model, optimizer, 2)
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    assert_equal_on_all_ranks(optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1 * hvd.size()


def test_learning_rates_that_are_tensors_stay_the_same_object() -> None:
    lr = torch.tensor(0.1 * (hvd.rank() + 1))
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(2))], lr=lr)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == pytest.approx(0.1)


def test_restoring_a_checkpoint_of_rank_0() -> None:
    """Only rank 0 loads; broadcasts bring the others along (appendix D)."""
    model = small_model(5)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.3)
    train(model, optimizer, 2)
    checkpoint = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    model = small_model(100 + hvd.rank())
    inner = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=list(model.named_parameters()))
    if hvd.rank() == 0:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_same_nest(dict(model.state_dict()), dict(checkpoint["model"]))
    assert_same_nest(optimizer.state_dict()["state"], checkpoint["optimizer"]["state"])
