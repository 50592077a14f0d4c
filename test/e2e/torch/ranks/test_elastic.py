"""Scripts written for elastic training, on ranks that stay: states, the sampler, and the loop after a failure."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic import state as state_module
from world import assert_same, assert_usable


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
    )


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> None:
    torch.manual_seed(100 * batch + hvd.rank())
    optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()


def copied(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def assert_equal(model: torch.nn.Module, expected: list[torch.Tensor]) -> None:
    for value, one in zip(model.state_dict().values(), expected, strict=True):
        assert_same(value, one)


def test_a_failed_collective_trains_on_from_the_last_commit() -> None:
    """The last rank leaves within a step, after some of its gradients were submitted; the result is as without."""

    def train(state: TorchState, fail_at: int | None) -> list[torch.Tensor]:
        seen.append(state.batch)
        for batch in range(state.batch, 6):
            if batch == fail_at and len(seen) == 1:
                if hvd.rank() == hvd.size() - 1:
                    state.optimizer.zero_grad()
                    state.model(torch.randn(8, 3)).square().mean().backward()
                    hvd.shutdown()
                    raise hvd.HorovodInternalError("this rank has lost its way")
                step(state.model, state.optimizer, batch)
                hvd.allreduce(torch.zeros(1), name="never")
            step(state.model, state.optimizer, batch)
            state.batch = batch + 1
            if batch % 2 == 1:
                state.commit()
        return [parameter.detach().clone() for parameter in state.model.parameters()]  # sync() changed the statistics

    results = []
    for fail_at in (None, 3):
        seen: list[int] = []
        model = model_of(hvd.rank())
        state = TorchState(model, optimizer_of(model), batch=0)
        results.append(hvd.elastic.run(train)(state, fail_at))
        assert seen == ([0] if fail_at is None else [0, 2])
        assert_usable()
    for without, after in zip(*results, strict=True):
        assert_same(after, without)


def test_sync_gives_all_ranks_rank_0s_state_and_saves_it() -> None:
    model = model_of(hvd.rank())
    optimizer = optimizer_of(model)
    step(model, optimizer, 0)
    sampler = ElasticSampler(range(40))
    sampler.record_batch(0, hvd.rank() + 1)
    state = TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank(), other=model_of(50 + hvd.rank()))
    assert state.model is model
    assert state.optimizer is optimizer
    state.epoch = 9  # not committed
    state.sync()
    assert state.epoch == 0
    assert sampler.processed_num == hvd.size()
    expected = hvd.broadcast_object([copied(model), copied(state.other)])
    assert_equal(model, expected[0])
    assert_equal(state.other, expected[1])
    step(model, optimizer, 1)
    state.restore()  # what sync() gave, not what was there before it
    assert_equal(model, expected[0])
    momentum = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
    for one in momentum:
        assert_same(one, hvd.broadcast(one, 0))


def test_a_commit_is_restored_as_often_as_it_is_needed() -> None:
    """An optimizer takes over what it loads, and its next step changes that."""
    model = model_of(0)
    optimizer = optimizer_of(model)
    step(model, optimizer, 0)
    state = TorchState(model, optimizer)
    results = []
    for _ in range(3):
        step(model, optimizer, 1)
        results.append(copied(model))
        state.restore()
    for again in results[1:]:
        for value, first in zip(again, results[0], strict=True):
            assert_same(value, first)


@pytest.mark.parametrize("lost", ["broadcast_optimizer_state", "broadcast_object"])
def test_a_sync_that_fails_halfway_leaves_the_last_commit(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise hvd.HorovodInternalError("rank 0 is gone")

    model = model_of(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0 + hvd.rank())
    before = copied(model)
    state = TorchState(model, optimizer, epoch=hvd.rank())
    if lost == "broadcast_object":
        state._bcast_object = fail
    else:
        monkeypatch.setattr(state_module, lost, fail)
    with pytest.raises(hvd.HorovodInternalError, match="rank 0 is gone"):
        state.sync()
    state.restore()
    assert_equal(model, before)
    assert (optimizer.param_groups[0]["lr"], state.epoch) == (1.0 + hvd.rank(), hvd.rank())


def test_what_is_put_in_place_of_a_model_is_saved() -> None:
    state = TorchState(model=model_of(1), batch=3)
    second = model_of(2)
    expected = copied(second)
    state.model = second
    with torch.no_grad():
        second[0].weight.fill_(0.0)
    state.restore()
    assert state.model is second
    assert_equal(second, expected)
    with pytest.raises(AttributeError, match="optimizer"):
        state.optimizer  # noqa: B018
    state.batch = 4
    state.restore()
    assert state.batch == 3


def test_a_handler_of_ones_own() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = hvd.rank()

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    class Handler(state_module.StateHandler):
        def sync(self) -> None:
            self.value.count = 77
            self.save()

    registry = state_module.get_handler_registry()
    try:
        state_module.set_handler_registry([*registry, (Counter, Handler)])
        state = TorchState(counter=Counter())
    finally:
        state_module.set_handler_registry(registry)
    state.counter.count = 5
    state.restore()
    assert state.counter.count == hvd.rank()
    state.sync()
    state.counter.count = 6
    state.restore()
    assert state.counter.count == 77


def test_a_commit_interrupts_all_ranks_when_rank_0_hears_of_hosts() -> None:
    state = TorchState(batch=0)
    if hvd.rank() == 0:
        state.on_hosts_updated(1.0, 1)
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.commit()
    assert interrupt.value.skip_sync


@pytest.mark.usefixtures("cpu_scaler")
def test_schedulers_and_scalers_stay_this_ranks_own() -> None:
    """Unpickled copies of them would drive unpickled copies of the optimizer."""
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (hvd.rank() + 1))
    for _ in range(hvd.rank() + 1):
        optimizer.step()
        scheduler.step()
    state = TorchState(model, optimizer, scheduler=scheduler, scaler=scaler)
    state.sync()
    assert state.scheduler is scheduler
    assert state.scaler is scaler
    assert scheduler.last_epoch == 1
    assert scaler.get_scale() == 2.0
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25
    state.restore()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert scheduler.last_epoch == 1


@pytest.mark.parametrize("is_adasum", [False, True])
def test_a_rank_that_left_its_session_goes_on(is_adasum: bool) -> None:
    """Also within an accumulation, with an optimizer and a sampler that know no session any more."""
    sets = [hvd.ProcessSet([0])] if hvd.size() > 1 else []
    hvd.shutdown()
    hvd.init(process_sets=sets)
    model = model_of(4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=2,
        op=hvd.Adasum if is_adasum else hvd.Average,
    )
    attempts: list[int] = []

    def two_passes() -> None:
        for _ in range(2):
            model(torch.randn(8, 3)).square().mean().backward()

    @hvd.elastic.run
    def train(state: TorchState) -> str:
        attempts.append(len(attempts))
        optimizer.zero_grad()
        if len(attempts) == 1:
            two_passes()
            optimizer.step()
            state.commit()
            optimizer.zero_grad()
            if hvd.rank() == hvd.size() - 1:
                hvd.shutdown()
            model(torch.randn(8, 3)).square().mean().backward()
            raise hvd.HorovodInternalError("between two passes")
        two_passes()
        optimizer.step()
        return "done"

    assert train(TorchState(model, sampler=ElasticSampler(range(10)))) == "done"
    assert attempts == [0, 1]
    assert [hvd.mpi_ops._basics._get_process_set_ids_and_ranks()[one.process_set_id] for one in sets] == [[0]] * len(
        sets
    )
    hvd.shutdown()


def test_a_state_of_ones_own_needs_no_more_than_its_methods() -> None:
    class Plain:
        log: list[str] = []  # noqa: RUF012

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self.log.append(name)

    failures = [hvd.HorovodInternalError("lost")] * 5

    def func(state: Any) -> str:
        if failures:
            raise failures.pop()
        return "done"

    plain = Plain()
    assert hvd.elastic.run(func)(plain) == "done"
    assert plain.log == ["sync", "restore", "on_reset"] * 5 + ["sync"]
