"""What DistributedOptimizer accepts, and what it makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from small_net import backward, net, sent_names, sgd, wrap


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


def test_state_of_the_wrapped_optimizer_is_taken_over(fake_pair: Any) -> None:
    model = net()
    inner = sgd(model, momentum=0.9)
    backward(model)
    inner.step()
    assert inner.state
    assert wrap(fake_pair.hvd, model, inner).state is inner.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_predivide_factor": 2.0, "op": 1}, "gradient_predivide_factor not supported with op != Average"),
        ({"op": 17}, r"DistributedOptimizer: op=17, expected one of hvd\.Average, hvd\.Sum"),
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


def test_what_is_no_optimizer_and_no_number_is_refused_by_its_type(fake_pair: Any) -> None:
    for wrong, kind in ((net(), "Sequential"), (net().parameters(), "generator")):
        with pytest.raises(TypeError, match=rf"expected a torch\.optim\.Optimizer, got {kind}$"):
            fake_pair.hvd.DistributedOptimizer(wrong)
    with pytest.raises(TypeError, match=r"DistributedOptimizer: op='Sum', expected one of hvd\.Average"):
        wrap(fake_pair.hvd, net(), op="Sum")


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


def test_adasum_works_on_the_global_set_only_and_is_ordinary_alone(fake_pair: Any) -> None:
    hvd = fake_pair.hvd
    with pytest.raises(NotImplementedError, match="global process set only"):
        wrap(hvd, net(), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    assert type(wrap(hvd, net(), op=hvd.Adasum)).__mro__[1].__name__ == "AdasumOptimizer"
    fake_pair.core.world = 1
    hvd.shutdown()
    hvd.init()
    model = net()
    optimizer = wrap(hvd, model, op=hvd.Adasum)
    assert type(optimizer).__mro__[1].__name__ != "AdasumOptimizer"
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
    assert len(sent_names(fake_pair.core)) == 4


def test_options_of_the_constructor_are_kept(fake_pair: Any) -> None:
    model = net()
    inner = torch.optim.Adagrad(model.parameters(), lr=0.5, initial_accumulator_value=3.0)
    optimizer = wrap(fake_pair.hvd, model, inner)
    assert optimizer.state[model[0].weight]["sum"].eq(3.0).all()


def test_parameters_on_another_device_are_refused_at_the_wrapping(fake_pair: Any) -> None:
    model = net().to("meta")
    with pytest.raises(NotImplementedError, match=r"shape .* is on 'meta', but collectives on devices"):
        wrap(fake_pair.hvd, model, sgd(model))


def test_a_single_process_may_train_on_any_device(fake: Any) -> None:
    model = net().to("meta")
    assert wrap(fake.hvd, model, sgd(model)).param_groups
