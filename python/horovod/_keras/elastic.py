"""What the callbacks of elastic training do; the same for every backend of Keras."""

from __future__ import annotations

from horovod._common.keras_elastic import CommitState, UpdateBatchState, UpdateEpochState

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState"]
