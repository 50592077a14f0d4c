"""Lightning's strategy in the ranks of an estimator. Import Lightning before it: see horovod.torch.lightning."""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy

_OF_GROUPS = ("lr", "initial_lr", "max_lr", "min_lr")
_OF_SCHEDULERS = ("base_lrs", "max_lrs", "min_lrs")


class ScalingStrategy(HorovodStrategy):
    """Multiplies the learning rates of optimizers and of their schedulers by the number of ranks."""

    strategy_name = "horovod-spark"

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for name in _OF_GROUPS:
                    if name in group:
                        group[name] = group[name] * hvd.size()  # a new one: groups may share a tensor
        for config in self.lr_scheduler_configs:
            scale_schedule(config.scheduler, hvd.size())


def scale_schedule(scheduler: Any, factor: int) -> None:
    """Multiplies the rates that a scheduler of torch, or those inside it, begin with, and their limits."""
    for name in _OF_SCHEDULERS:
        if isinstance(rates := getattr(scheduler, name, None), list):
            setattr(scheduler, name, [rate * factor for rate in rates])
    for inner in getattr(scheduler, "_schedulers", ()):
        scale_schedule(inner, factor)
