"""What divides the work of elastic training among the ranks: the sampler, learning rates, batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import horovod.torch as hvd
from horovod.torch.elastic import ElasticSampler, TorchState
from training import net, wrap


def test_the_sampler_divides_what_is_left() -> None:
    rows = 23
    sampler = ElasticSampler(range(rows), seed=3)
    batch = 2
    mine: list[int] = []
    for index, row in enumerate(sampler):
        mine.append(row)
        if len(mine) == 2 * batch:
            break
        if index % batch == batch - 1:
            sampler.record_batch(index // batch, batch)
    sampler.record_batch(1, batch)
    done = [row for of_rank in hvd.allgather_object(mine) for row in of_rank]
    assert sampler.processed_num == len(done) == len(set(done))
    resumed = ElasticSampler(range(rows), seed=3)
    resumed.load_state_dict(sampler.state_dict())
    rest = hvd.allgather_object(list(resumed))
    assert {len(of_rank) for of_rank in rest} == {len(resumed)}
    assert set(done) | {row for of_rank in rest for row in of_rank} == set(range(rows))
    assert not set(done) & {row for of_rank in rest for row in of_rank}
    resumed.set_epoch(1)
    assert resumed.processed_num == 0
    assert resumed.remaining_indices != ElasticSampler(range(rows), seed=3).remaining_indices
    assert sorted(resumed.remaining_indices) == list(range(rows))
    assert ElasticSampler(range(rows), shuffle=False).remaining_indices == list(range(rows))


@pytest.mark.parametrize("left", [0, 1])
def test_the_sampler_at_the_end_of_an_epoch(left: int) -> None:
    sampler: Any = ElasticSampler(range(4), shuffle=False)
    sampler.load_state_dict({"epoch": 0, "processed_num": 4 - left})
    assert list(sampler) == [3] * left  # the last row on every rank
    assert len(sampler) == left


def test_learning_rates_follow_the_number_of_ranks() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    state = TorchState(model=model, optimizer=optimizer)
    group = optimizer.param_groups[0]
    for _ in range(2):  # the second time nothing has changed
        hvd.elastic.scale_learning_rate(optimizer)
        assert group["lr"] == pytest.approx(0.1 * hvd.size())
    state.restore()  # of before
    group = optimizer.param_groups[0]
    assert group["lr"] == pytest.approx(0.1)
    if hvd.rank() == 0:
        group["lr"], group["horovod_ranks"] = 0.3, 4 * hvd.size()  # as it was with more ranks
    state.sync()  # the number comes with the rate
    for _ in range(2):
        hvd.elastic.scale_learning_rate(optimizer, power=0.5)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.15)


def test_batches_of_all_ranks_together_stay_as_large() -> None:
    rows = list(range(48))
    loader: DataLoader[int] = DataLoader(rows, batch_size=5, sampler=hvd.elastic.ElasticSampler(rows))
    assert hvd.elastic.keep_batch_size(loader, 12) == 12 // hvd.size()
    lengths = [len(batch) for batch in loader]
    assert lengths == [12 // hvd.size()] * 4
    assert len(loader) == 4
    assert hvd.elastic.keep_batch_size(loader, 1) == 1  # no rank is without a row
    for total, nearest in ((10, [10, 5, 3, 3]), (11, [11, 6, 4, 3])):
        assert hvd.elastic.keep_batch_size(loader, total) == nearest[hvd.size() - 1]
    for total in (0, -1):
        with pytest.raises(ValueError, match=f"total is {total}"):
            hvd.elastic.keep_batch_size(loader, total)
    with pytest.raises(TypeError, match="batch_sampler is NoneType"):
        hvd.elastic.keep_batch_size(DataLoader(rows, batch_size=None), 12)
