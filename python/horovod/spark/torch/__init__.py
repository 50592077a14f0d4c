"""Estimators of Spark ML that train models of PyTorch.

from horovod.spark.torch import TorchEstimator

estimator = TorchEstimator(num_proc=2, store=store, model=model, optimizer=optimizer, loss=loss,
                           feature_cols=["features"], label_cols=["label"], batch_size=64, epochs=5)
predictions = estimator.fit(train_df).transform(test_df)
"""

from __future__ import annotations

from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
