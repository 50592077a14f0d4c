"""An estimator of Spark ML that trains modules of Lightning, and plain ones of PyTorch by Lightning's Trainer.

from horovod.spark.lightning import TorchEstimator

estimator = TorchEstimator(num_proc=2, store=store, model=module, feature_cols=["features"], label_cols=["label"],
                           batch_size=64, epochs=5)
predictions = estimator.fit(train_df).transform(test_df)
"""

from __future__ import annotations

from horovod.spark.lightning.estimator import MIN_PL_VERSION, TorchEstimator, TorchModel

__all__ = ["MIN_PL_VERSION", "TorchEstimator", "TorchModel"]
