"""DistributedOptimizer's own decisions: checks, names, when it submits what (contract 02 §2.6)."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from fake_core import DTYPES


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def sgd(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def wrap(hvd: Any, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Any:
    options.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(optimizer or sgd(model), **options)


def backward(model: nn.Module) -> None:
    model(torch.ones(5, 3)).square().sum().backward()


# Construction


def test_the_result_has_the_name_and_type_of_the_wrapped_class(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    inner = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.8, 0.9))
    optimizer = wrap(hvd, model, inner)
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert type(optimizer).__module__ == hvd.DistributedOptimizer.__module__ == "horovod.torch.optimizer"
    assert optimizer.param_groups[0]["lr"] == 0.3
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    assert optimizer.param_groups[0] is inner.param_groups[0]  # a scheduler of the wrapped one still works


def test_state_of_the_wrapped_optimizer_is_not_copied(fake_pair: Any) -> None:
    model = net()
    inner = sgd(model, momentum=0.9)
    backward(model)
    inner.step()
    assert inner.state
    assert not wrap(fake_pair.hvd, model, inner).state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_predivide_factor": 2.0, "op": 1}, "gradient_predivide_factor not supported with op != Average"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0, got 0"),
        ({"named_parameters": [torch.ones(1)]}, "named_parameters should be a sequence of tuples"),
        ({"groups": 0}, "groups should be a positive integer"),
        ({"groups": -1}, "groups should be a positive integer"),
        ({"groups": "two"}, "groups should be a positive integer or a list of lists of parameters, got str"),
        ({"groups": [["weight"]]}, r"groups\[0\] must consist of tensors, found str"),
    ],
)
def test_wrong_arguments_are_refused(fake_pair: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(fake_pair.hvd, net(), **options)


def test_names_must_be_unique_and_complete(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    named = list(model.named_parameters())
    with pytest.raises(ValueError, match=r"must be unique; found twice: 0\.weight"):
        wrap(hvd, model, named_parameters=[*named, ("0.weight", torch.ones(1))])
    with pytest.raises(ValueError, match="1 parameter"):
        wrap(hvd, model, named_parameters=named[1:])
    extra = [*named, ("extra", nn.Parameter(torch.ones(1)))]
    assert wrap(hvd, model, named_parameters=extra)._parameter_names[named[0][1]] == "0.weight"


def test_a_parameter_may_be_in_one_group_only_and_must_be_the_optimizers(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    weight = model[0].weight
    with pytest.raises(ValueError, match="appears twice in groups"):
        wrap(hvd, model, groups=[[weight], [weight]])
    with pytest.raises(ValueError, match="not in the optimizer"):
        wrap(hvd, model, groups=[[torch.ones(1)]])


def test_wrapping_twice_is_refused(fake_pair: Any) -> None:
    model = net()
    with pytest.raises(ValueError, match="already"):
        wrap(fake_pair.hvd, model, wrap(fake_pair.hvd, model))


def test_adasum_is_refused_between_ranks_and_ordinary_alone(fake_pair: Any) -> None:
    hvd = fake_pair.hvd
    with pytest.raises(NotImplementedError, match="Adasum is not built yet"):
        wrap(hvd, net(), op=hvd.Adasum)
    fake_pair.core.world = 1
    hvd.shutdown()
    hvd.init()
    model = net()
    optimizer = wrap(hvd, model, op=hvd.Adasum)
    backward(model)
    optimizer.step()


def test_num_groups_is_deprecated(fake_pair: Any) -> None:
    with pytest.warns(DeprecationWarning, match="num_groups"):
        wrap(fake_pair.hvd, net(), num_groups=2)


def test_before_init_it_says_so(fake_uninitialized: Any) -> None:
    with pytest.raises(ValueError, match="init"):
        wrap(fake_uninitialized.hvd, net())


class NeedsMore(torch.optim.Optimizer):
    """An optimizer whose constructor takes what its defaults do not hold."""

    def __init__(self, params: Any, inner: type[torch.optim.Optimizer], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})
        self.inner = inner(self.param_groups, lr=lr)

    def step(self, closure: Any = None) -> Any:
        return self.inner.step()


def test_optimizers_with_their_own_constructor_arguments_can_be_wrapped(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, NeedsMore(model.parameters(), torch.optim.SGD))
    before = model[0].weight.detach().clone()
    backward(model)
    optimizer.step()
    assert not torch.equal(before, model[0].weight)
    assert len(fake_pair.core.names) == 4


def test_options_of_the_constructor_are_kept(fake_pair: Any) -> None:
    model = net()
    inner = torch.optim.Adagrad(model.parameters(), lr=0.5, initial_accumulator_value=3.0)
    optimizer = wrap(fake_pair.hvd, model, inner)
    assert optimizer.state[model[0].weight]["sum"].eq(3.0).all()


# When what is submitted


def test_each_gradient_is_submitted_during_backward(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model)
    backward(model)
    names = sorted(fake_pair.core.names)
    assert names == ["allreduce.0.bias", "allreduce.0.weight", "allreduce.2.bias", "allreduce.2.weight"]
    assert all(c.data_ptr == c.output_ptr for c in fake_pair.core.calls)
    optimizer.step()
    assert len(fake_pair.core.calls) == 4


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


def test_a_single_elastic_rank_is_prepared_for_others(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    model = net()
    optimizer = wrap(fake.hvd, model)
    backward(model)
    optimizer.step()
    assert len(fake.core.calls) == 4


def test_parameters_that_backward_missed_are_submitted_as_zeros(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    model[0](torch.ones(1, 3)).sum().backward()
    assert sorted(fake_pair.core.names) == ["allreduce.0.bias", "allreduce.0.weight"]
    optimizer.step()
    assert sorted(fake_pair.core.names)[2:] == ["allreduce.2.bias", "allreduce.2.weight"]
    assert torch.equal(model[2].weight.grad, torch.zeros(2, 4))


def test_gradients_travel_at_the_last_pass_of_a_step(fake_pair: Any) -> None:
    model, twin = net(), net()
    optimizer = wrap(fake_pair.hvd, model, backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    backward(model)
    assert fake_pair.core.calls == []
    backward(model)
    assert len(fake_pair.core.calls) == 4
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
    assert len(fake_pair.core.calls) == 4


def test_the_predivide_factor_is_split_around_the_sum(fake_pair: Any) -> None:
    hvd, model = fake_pair.hvd, net()
    optimizer = wrap(hvd, model, gradient_predivide_factor=4.0)
    backward(model)
    optimizer.step()
    assert {(c.reduce_op, c.prescale, c.postscale) for c in fake_pair.core.calls} == {(hvd.Average, 0.25, 4.0)}


def test_the_predivide_factor_applies_to_groups_too(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, gradient_predivide_factor=4.0, groups=2)
    fake_pair.core.calls.clear()
    backward(model)
    assert {(c.prescale, c.postscale) for c in fake_pair.core.calls} == {(0.25, 4.0)}
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
    names = fake_pair.core.names
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
    assert fake_pair.core.calls == []
    optimizer.step()
    assert len(fake_pair.core.calls) == 4


def test_a_number_of_groups_cuts_even_chunks(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model, groups=3)
    fake_pair.core.calls.clear()
    backward(model)
    optimizer.step()
    grouped = [name for name in fake_pair.core.names if name.startswith("grouped")]
    assert grouped == ["grouped_allreduce.0.weight_1of2", "grouped_allreduce.0.weight_2of2"]
    assert len(fake_pair.core.names) == 4


def test_frozen_parameters_are_left_out_of_groups(fake_pair: Any) -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    optimizer = wrap(fake_pair.hvd, model, groups=[list(model.parameters())])
    backward(model)
    assert len(fake_pair.core.calls) == 3
    optimizer.step()


# synchronize, step, zero_grad


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
    assert len(fake_pair.core.calls) == 4


def test_a_step_that_synchronises_again_warns_exactly_once(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    backward(model)
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize") as caught:
        optimizer.step()
    assert len(caught) == 1
    assert "optimizer.step() called without optimizer.skip_synchronize()" in str(caught[0].message)
    assert len(fake_pair.core.calls) == 8


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
        seen.append(len(fake_pair.core.calls))
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
    assert "allreduce.0.weight" not in fake_pair.core.names
    model[0].weight.requires_grad_(True)
    for step in (1, 2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        assert fake_pair.core.names.count("allreduce.0.weight") == step


def test_parameters_frozen_later_are_submitted_as_zeros(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    model[0].weight.requires_grad_(False)
    backward(model)
    optimizer.step()
    assert fake_pair.core.names.count("allreduce.0.weight") == 1


def test_parameters_added_later_are_reduced(fake_pair: Any) -> None:
    model, more = net(), nn.Linear(2, 2, bias=False)
    optimizer = wrap(fake_pair.hvd, model)
    optimizer.add_param_group({"params": more.parameters(), "lr": 0.5})
    assert optimizer._parameter_names[more.weight] == "allreduce.noname.1.0"
    more(model(torch.ones(1, 3))).sum().backward()
    assert "allreduce.allreduce.noname.1.0" in fake_pair.core.names
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
    assert fake_pair.core.calls == []
    wrap(hvd, model)


def test_a_deep_copy_reduces_the_copied_parameters_under_the_same_names(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    twin_model, twin = copy.deepcopy((model, optimizer))
    assert twin._parameter_names[twin_model[0].weight] == "0.weight"
    backward(twin_model)
    assert len(fake_pair.core.calls) == 4
    twin.step()


# Sparse gradients


def embedding_loss(model: nn.Module) -> torch.Tensor:
    return model(torch.tensor([0, 2, 2])).square().sum()


def test_sparse_gradients_stay_sparse(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model)
    embedding_loss(model).backward()
    expected = model.weight.grad.to_dense()
    optimizer.synchronize()
    assert model.weight.grad.is_sparse
    # The other rank of the fake sent nothing, so that the average is half of the own values.
    assert torch.equal(model.weight.grad.to_dense(), expected / 2)
    assert fake_pair.core.names == ["allgather.weight.indices", "allgather.weight.values"]


def test_sparse_gradients_can_travel_dense(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model, sparse_as_dense=True)
    embedding_loss(model).backward()
    expected = model.weight.grad.to_dense()
    optimizer.synchronize()
    assert model.weight.grad.is_sparse
    assert torch.equal(model.weight.grad.to_dense(), expected)
    assert fake_pair.core.names == ["allreduce.weight"]


def test_a_sparse_parameter_unused_in_a_step_submits_no_rows(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model)
    embedding_loss(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    fake_pair.core.calls.clear()
    optimizer.step()
    assert fake_pair.core.names == ["allgather.weight.indices", "allgather.weight.values"]
    assert [call.shape for call in fake_pair.core.calls] == [(0, 1), (0, 2)]


def test_groups_refuse_sparse_gradients(fake_pair: Any) -> None:
    model = nn.ModuleDict({"a": nn.Embedding(3, 2, sparse=True), "b": nn.Embedding(3, 2)})
    optimizer = wrap(fake_pair.hvd, model, groups=[list(model.parameters())])
    with pytest.raises(ValueError, match=r"gradient of a\.weight is sparse"):
        (model["a"](torch.tensor([1])) + model["b"](torch.tensor([1]))).sum().backward()
    del optimizer


@pytest.mark.filterwarnings("ignore:Using backward.* with create_graph")
def test_a_gradient_that_needs_a_gradient_is_refused(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    with pytest.raises(AssertionError, match="requires a gradient itself"):
        model(torch.ones(1, 3)).square().sum().backward(create_graph=True)
    del optimizer


def test_a_model_may_change_its_type_after_wrapping(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        optimizer.zero_grad()
        fake_pair.core.calls.clear()
        model(torch.ones(5, 3, dtype=dtype)).square().sum().backward()
        codes = {call.dtype for call in fake_pair.core.calls}
        optimizer.step()
        assert codes == {list(DTYPES.values()).index(dtype)}
