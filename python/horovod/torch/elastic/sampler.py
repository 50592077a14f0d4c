"""A sampler that knows how far an epoch has come."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from horovod.torch.mpi_ops import is_initialized, rank, size

__all__ = ["ElasticSampler"]


class ElasticSampler(Sampler[int]):
    """Divides the rows of `dataset` between ranks, and after a reset those of them that no rank has processed.

    `shuffle`: in another order each epoch, the same on all ranks, which `seed` decides. Call record_batch() after each
    batch and set_epoch() at the end of each epoch, and give the sampler to a TorchState.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0  # rows of this epoch, on all ranks together
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.num_samples = 0  # rows of this rank that are left
        self.total_size = 0  # of all ranks, with the rows that are repeated to make ranks equal
        self.indices: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins epoch `epoch` with all rows. At the end of an epoch, not at its start: a reset would begin it anew."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed `batch_size` rows more. `batch_idx` is accepted for Horovod's sake."""
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """The epoch and how many of its rows are processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` says."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left of the epoch between the ranks that there are now; later, when there is no session."""
        if not is_initialized() and self.num_replicas:  # a state that is restored after the session has ended
            return
        self.num_replicas = size()
        self.rank = rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        self.indices = list(self.remaining_indices)
        while len(self.indices) < self.total_size:  # more ranks than rows: more than once
            self.indices += self.indices[: self.total_size - len(self.indices)]
        return iter(self.indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
