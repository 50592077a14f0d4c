"""Batches that stay as large as they are, all ranks together."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from horovod.torch.mpi_ops import size

__all__ = ["keep_batch_size"]


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
