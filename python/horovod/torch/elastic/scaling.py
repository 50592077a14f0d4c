"""Batches and learning rates that fit the number of ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader

from horovod.torch.mpi_ops import size

__all__ = ["keep_batch_size", "scale_learning_rate"]

_RANKS = "horovod_ranks"  # in each group of parameters: what its rate is for, saved and sent with the rate


def keep_batch_size(loader: DataLoader[Any], total: int) -> int:
    """Makes `loader` give batches of `total` rows on all ranks together, from its next iteration on.

    Gives the rows of this rank, which is what ElasticSampler.record_batch() wants. To be called where the training
    function of `run` begins. Every rank gets equally many, because gradients are averaged over ranks: the nearest to
    total / ranks, and one at least. So a total that all numbers of ranks divide is kept exactly (24 on 1, 2, 3 and 4
    ranks), another one to half a row a rank. The learning rate then stays as it is.
    """
    if total < 1:
        raise ValueError(f"total is {total}: expected the rows of a step on all ranks, 1 or more")
    batches = loader.batch_sampler
    if not isinstance(batches, BatchSampler):
        found = type(batches).__name__
        raise TypeError(f"the batch_sampler is {found}: expected a BatchSampler, as DataLoader(batch_size=) makes")
    batches.batch_size = max(1, (2 * total + size()) // (2 * size()))
    return batches.batch_size


def scale_learning_rate(optimizer: torch.optim.Optimizer, power: float = 1.0) -> None:
    """Multiplies the learning rates of `optimizer` by (ranks now / ranks at the last call) ** `power`.

    To be called where the training function of `run` begins: there the rates are those of the last commit, or rank 0's.
    The first call counts from one rank. `power`: 1 where the rate follows the size of the batch, 0.5 where it follows
    its square root. Schedulers that multiply the present rate go on with it. One that begins from its base rates
    (LambdaLR) does not: give it a function that asks for `size()`.
    """
    for group in optimizer.param_groups:
        factor = (size() / group.get(_RANKS, 1)) ** power
        if factor != 1:
            group["lr"] = group["lr"] * factor
        group[_RANKS] = size()
