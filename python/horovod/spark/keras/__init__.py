"""Estimators of Spark ML that train models of Keras.

from horovod.spark.keras import KerasEstimator

estimator = KerasEstimator(num_proc=2, store=store, model=model, optimizer=keras.optimizers.Adam(0.01), loss="mse",
                           feature_cols=["features"], label_cols=["label"], batch_size=64, epochs=5)
predictions = estimator.fit(train_df).transform(test_df)
"""

from __future__ import annotations

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
