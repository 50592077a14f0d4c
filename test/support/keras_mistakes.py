"""Mistakes that both modules for Keras answer alike (keras_face.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_face import DATA, Face


def test_only_optimizers_are_wrapped_and_once_only(face: Face) -> None:
    wrapped = face.sgd()
    for twice in (wrapped, face.scaling(wrapped)):
        with pytest.raises(ValueError, match=r"is a hvd\.DistributedOptimizer already; wrap it once"):
            face.hvd.DistributedOptimizer(twice)
    for thing in ("sgd", None, 3, face.keras.layers.Dense(1)):
        with pytest.raises(ValueError, match="expected an optimizer"):
            face.hvd.DistributedOptimizer(thing)
    with pytest.raises(ValueError, match=r"expected an optimizer, got the class SGD: make one, SGD\("):
        face.hvd.DistributedOptimizer(face.keras.optimizers.SGD)
    assert face.usable()


@pytest.mark.parametrize("groups", [0, -1, True, "ab", 1.5, [1, 2]])
def test_groups_are_a_number_or_lists(face: Face, groups: Any) -> None:
    with pytest.raises(ValueError, match="groups should be a positive integer or a list of lists"):
        face.sgd(groups=groups)


def test_gradients_are_averaged_or_added(face: Face) -> None:
    hvd = face.hvd
    for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(ValueError, match="Average and Sum"):
            face.sgd(op=op)
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        face.sgd(op=hvd.Sum, gradient_predivide_factor=2.0)


def test_a_plain_optimizer_is_warned_of_once(face: Face) -> None:
    size = face.hvd.size()
    model = face.model(face.keras.optimizers.SGD(0.05))
    found = face.warnings_of(model)
    assert len(found) == (1 if size > 1 else 0)
    assert all(f"plain SGD: its gradients are not averaged over the {size} ranks" in text for text in found)
    assert face.warnings_of(model) == []


def test_a_wrapped_optimizer_is_not_warned_of(face: Face) -> None:
    for optimizer in (face.sgd(), face.scaling(face.sgd())):
        assert face.warnings_of(face.model(optimizer)) == []


def test_a_train_step_of_its_own_is_not_warned_of(face: Face) -> None:
    """It may reduce there."""

    class OwnStep(face.keras.Sequential):  # type: ignore[misc,name-defined]
        def train_step(self, *data: Any) -> Any:
            return super().train_step(*data)

    assert face.warnings_of(face.model(face.keras.optimizers.SGD(0.05), OwnStep)) == []


def test_variables_of_a_broadcast_are_variables(face: Face) -> None:
    for local in ("kernel", 3, [1]):
        with pytest.raises(ValueError, match="local_variables must be a variable or a collection"):
            face.hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)


@pytest.mark.usefixtures("several_ranks")
def test_metrics_that_only_some_ranks_have_are_named(face: Face) -> None:
    model = face.model(face.sgd())
    validation = {"validation_data": DATA} if face.hvd.rank() == 0 else {}
    with pytest.raises(ValueError, match=r"val_loss.*rank 0.*give every rank"):
        model.fit(*DATA, verbose=0, callbacks=[face.hvd.callbacks.MetricAverageCallback()], **validation)
    assert face.usable()


def test_metrics_may_be_numbers_and_arrays_or_none_at_all(face: Face) -> None:
    callback = face.hvd.callbacks.MetricAverageCallback()
    callback.set_model(face.model(face.sgd()))
    rank, mean = face.hvd.rank(), (face.hvd.size() - 1) / 2
    logs: dict[str, Any] = {"a": 1.0 * rank, "b": np.float32(2.0), "c": np.array([1.0, rank]), "d": 3}
    callback.on_epoch_end(0, logs)
    assert type(logs["a"]) is float
    assert (logs["a"], logs["b"], logs["c"].tolist(), logs["d"]) == (mean, 2.0, [1.0, mean], 3)
    callback.on_epoch_end(1, None)
    callback.on_epoch_end(2, {})
