"""Lightning's strategy in the ranks of an estimator. Import Lightning before it: see horovod.torch.lightning."""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy


class ScalingStrategy(HorovodStrategy):
    """Multiplies the learning rates of optimizers and of their schedulers by the number of ranks."""

    strategy_name = "horovod-spark"

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] *= hvd.size()
                if "initial_lr" in group:
                    group["initial_lr"] *= hvd.size()
        for config in self.lr_scheduler_configs:
            if hasattr(config.scheduler, "base_lrs"):
                config.scheduler.base_lrs = [rate * hvd.size() for rate in config.scheduler.base_lrs]
