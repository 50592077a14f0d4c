"""Broadcast of parameters, optimizer state and objects."""

from __future__ import annotations

import builtins
import copy
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod._common import objects
from horovod.torch._allgather import gather_with_rows
from world import assert_same, assert_usable


def small_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model.register_parameter("counter", nn.Parameter(torch.tensor([seed, 2]), requires_grad=False))
    return model


def assert_equal_on_all_ranks(value: Any) -> None:
    """Compares a nest of dicts, lists and tensors with rank 0's, types included."""
    everybodys = hvd.allgather_object(value)
    for other in everybodys[1:]:
        assert_same_nest(other, everybodys[0])


def assert_same_nest(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert_same_nest(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_nest(a, b)
    else:
        assert one == other


# Parameters


@pytest.mark.parametrize("form", ["state_dict", "named list", "list"])
def test_parameters_of_the_root_win(form: str) -> None:
    for root in range(hvd.size()):
        model, expected = small_model(hvd.rank()), small_model(root)
        if form == "state_dict":
            hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        elif form == "named list":
            hvd.broadcast_parameters(list(model.named_parameters()), root_rank=root)
        else:
            hvd.broadcast_parameters(list(model.parameters()), root_rank=root)
        for own, wanted in zip(model.parameters(), expected.parameters(), strict=True):
            assert_same(own.detach(), wanted.detach())


def test_parameters_with_other_strides_are_broadcast() -> None:
    weight = torch.full((4, 3, 2, 2), float(hvd.rank())).to(memory_format=torch.channels_last)
    weight += torch.arange(48.0).view(4, 3, 2, 2)
    hvd.broadcast_parameters({"weight": weight}, root_rank=hvd.size() - 1)
    assert torch.equal(weight, torch.arange(48.0).view(4, 3, 2, 2) + hvd.size() - 1)
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_other_containers_are_refused() -> None:
    model = small_model(0)
    for bad in (model.named_parameters(), model.parameters(), {1, 2}, torch.ones(1)):
        with pytest.raises(ValueError, match="expected a dict, a list of tensors"):
            hvd.broadcast_parameters(bad, root_rank=0)
    with pytest.raises(ValueError, match="'a' is a int, not a tensor"):
        hvd.broadcast_parameters({"a": 1}, root_rank=0)
    assert_usable()


# Objects


def test_objects_are_broadcast_and_the_root_keeps_its_own() -> None:
    for root in range(hvd.size()):
        mine = {"rank": hvd.rank(), "values": (1, 2.5, "drei"), "function": lambda x: x + 1}
        got = hvd.broadcast_object(mine, root_rank=root, name="object")
        assert got["rank"] == root
        assert got["function"](1) == 2
        assert (got is mine) == (hvd.rank() == root)


def test_only_the_root_needs_an_object() -> None:
    got = hvd.broadcast_object([1, {2: "x"}] if hvd.rank() == 0 else None)
    assert got == [1, {2: "x"}]


def test_large_objects() -> None:
    text = "x" * 3_000_000
    assert hvd.broadcast_object(text if hvd.rank() == 0 else "") == text


def test_objects_are_gathered_in_rank_order() -> None:
    own = {"rank": hvd.rank(), "pad": "y" * (1000 * hvd.rank())}
    got = hvd.allgather_object(own)
    assert got == [{"rank": rank, "pad": "y" * (1000 * rank)} for rank in range(hvd.size())]
    mixed: list[Any] = [None, 1, "two"]
    assert hvd.allgather_object(mixed[hvd.rank() % 3], name="mixed") == [mixed[r % 3] for r in range(hvd.size())]


# Optimizer state

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
@pytest.mark.parametrize(("name", "root_options", "options"), OPTIMIZERS)
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


# What is unpickled has a seal


class Trap:
    """Sets a mark in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import builtins; builtins.hvd_trapped = True",))


def send_as_object(payload: bytes, name: str) -> None:
    """What rank 0's broadcast_object(name=name) sends, with other bytes: as somebody on the path would change them."""
    hvd.broadcast(torch.tensor([len(payload)]), 0, name=f"{name}.sz")
    hvd.broadcast(torch.tensor(list(payload), dtype=torch.uint8), 0, name=f"{name}.t")


@pytest.mark.usefixtures("several_ranks")
def test_an_object_whose_seal_is_wrong_is_not_unpickled() -> None:
    trap = cloudpickle.dumps(Trap())
    purpose = objects.purpose("broadcast_object", "sealed", 0)
    if hvd.rank() == 0:
        good = bytes(objects.dump("good", purpose))
        elsewhere = bytes(objects.dump(Trap(), objects.purpose("broadcast_object", "other", 0)))
        changed = bytearray(objects.dump(Trap(), purpose))
        changed[5] ^= 1
        for payload in (trap, b"", trap + good[-40:], elsewhere, bytes(changed), good, good):
            send_as_object(payload, "sealed")
    else:
        for _ in range(5):
            with pytest.raises(hvd.HorovodInternalError, match=r"from rank 0 .*seal"):
                hvd.broadcast_object(None, 0, "sealed")
        assert hvd.broadcast_object(None, 0, "sealed") == "good"
        with pytest.raises(hvd.HorovodInternalError, match="from rank 0 is a repetition of an earlier message"):
            hvd.broadcast_object(None, 0, "sealed")
    assert not hasattr(builtins, "hvd_trapped")
    # One bad part of an allgather is enough.
    if hvd.rank() == 1:
        gather_with_rows(torch.frombuffer(bytearray(trap), dtype=torch.uint8), "all.t", hvd.global_process_set)
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"from rank 1 .*seal"):
            hvd.allgather_object("mine", name="all")
    assert not hasattr(builtins, "hvd_trapped")
    assert_usable()
