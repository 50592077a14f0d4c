"""Learning rates that follow the number of ranks."""

from __future__ import annotations

import torch

from horovod.torch.mpi_ops import size

__all__ = ["scale_learning_rate"]

_RANKS = "horovod_ranks"  # in each group of parameters: what its rate is for, saved and sent with the rate


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
