"""Callbacks that both modules for Keras have alike (keras_face.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_face import DATA, Face

BATCHES = len(DATA[0])


def rates_of(face: Face, callback: Any, epochs: int, rate: float = 1.0, **options: Any) -> list[float]:
    """The learning rate of each batch; that of an epoch's last one is in its logs."""
    rates: list[float] = []
    model = face.model(face.hvd.DistributedOptimizer(face.keras.optimizers.SGD(rate, momentum=0.5)))
    recorder = face.keras.callbacks.LambdaCallback(  # its model has on JAX what the last step made of the optimizer
        on_train_batch_begin=lambda batch, logs: rates.append(float(recorder.model.optimizer.learning_rate))
    )
    callbacks = [callback, recorder]
    history = model.fit(*DATA, batch_size=1, epochs=epochs, verbose=0, callbacks=callbacks, **options).history
    assert history["lr"] == pytest.approx(rates[BATCHES - 1 :: BATCHES], rel=1e-5)
    return rates


def test_warmup_rises_batch_by_batch(face: Face) -> None:
    rates = rates_of(face, face.hvd.callbacks.LearningRateWarmupCallback(0.6, warmup_epochs=2), epochs=3)
    size = face.hvd.size()
    progress = [min((batch + 1) / (2 * BATCHES), 1.0) for batch in range(3 * BATCHES)]
    assert rates == pytest.approx([0.6 * (part * (size - 1) + 1) / size for part in progress])


def test_warmup_starts_in_the_middle_with_initial_epoch(face: Face) -> None:
    warmup = face.hvd.callbacks.LearningRateWarmupCallback(0.6, warmup_epochs=2)
    rates = rates_of(face, warmup, epochs=2, initial_epoch=1)
    size = face.hvd.size()
    progress = [(BATCHES + batch + 1) / (2 * BATCHES) for batch in range(BATCHES)]
    assert rates == pytest.approx([0.6 * (part * (size - 1) + 1) / size for part in progress])


def test_a_number_is_raised_to_the_epochs_since_the_start(face: Face) -> None:
    schedule = face.hvd.callbacks.LearningRateScheduleCallback(0.8, 0.5, start_epoch=1, end_epoch=3)
    rates = rates_of(face, schedule, epochs=4, rate=0.1)
    assert rates == pytest.approx([0.1] * BATCHES + [0.8] * BATCHES + [0.4] * BATCHES * 2)


def test_a_function_sees_fractions_of_epochs_without_staircase(face: Face) -> None:
    seen: list[float] = []

    def multiplier(epoch: float) -> float:
        seen.append(epoch)
        return 1.0 + epoch

    schedule = face.hvd.callbacks.LearningRateScheduleCallback(0.1, multiplier, staircase=False)
    rates = rates_of(face, schedule, epochs=2)
    expected = [epoch + batch / BATCHES for epoch in range(2) for batch in range(BATCHES)]
    assert seen == pytest.approx(expected)
    assert rates == pytest.approx([0.1 * (1.0 + epoch) for epoch in expected])


def test_a_schedule_needs_a_rate_that_can_be_set(face: Face) -> None:
    with pytest.raises(ValueError, match="initial_lr"):
        face.hvd.callbacks.LearningRateScheduleCallback(None, 0.5)
    decay = face.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    model = face.model(face.hvd.DistributedOptimizer(face.keras.optimizers.SGD(decay)))
    with pytest.raises(ValueError, match=r"ExponentialDecay.*give the optimizer a number"):
        model.fit(*DATA, verbose=0, callbacks=[face.hvd.callbacks.LearningRateScheduleCallback(0.5, 0.5)])


def test_every_metric_is_averaged_in_every_epoch(face: Face) -> None:
    hvd, layers = face.hvd, face.keras.layers
    seen: list[dict[str, Any]] = []
    model = face.keras.Sequential([layers.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    still = hvd.DistributedOptimizer(face.keras.optimizers.SGD(0.0))
    model.compile(still, loss="mean_squared_error", metrics=["mae"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        face.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs))),
    ]
    x, y = DATA[0], np.full(DATA[1].shape, hvd.rank() + 1.0, np.float32)
    data = {"validation_data": (x, 2 * y), "callbacks": callbacks}
    history = model.fit(x, y, batch_size=1, epochs=2, verbose=0, **data).history
    off_by = np.arange(hvd.size()) + 1.0
    expected = {
        "loss": np.mean(off_by**2),
        "mae": np.mean(off_by),
        "val_loss": np.mean(4 * off_by**2),
        "val_mae": np.mean(2 * off_by),
    }
    assert len(seen) == 2
    for logs in seen:
        assert {name: logs[name] for name in expected} == pytest.approx(expected)
        assert isinstance(logs["loss"], float)
    for name, value in expected.items():
        assert history[name] == pytest.approx([value, value]), "History comes last"
