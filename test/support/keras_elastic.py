"""Elastic training with both modules for Keras (keras_face.py): an epoch that was interrupted goes on with the batches that
are left, and a state is what rank 0 has.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keras_face import DATA, Face, flat, optimizer_variables


class State(SimpleNamespace):
    """What the callbacks need of a state."""

    def commit(self) -> None:
        self.commits.append((self.epoch, self.batch))


def fit(model: Any, callbacks: list[Any], epochs: int = 1) -> None:
    """Four batches an epoch."""
    model.fit(*DATA, batch_size=1, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)


def counting(face: Face, counts: list[int]) -> Any:
    """Counts the batches of each epoch."""

    def count(*_: Any, **__: Any) -> None:
        counts[-1] += 1

    callback = face.keras.callbacks.LambdaCallback
    return callback(on_epoch_begin=lambda epoch, logs: counts.append(0), on_train_batch_end=count)


def run(face: Face, state: State, epochs: int, *others: Any) -> list[int]:
    elastic, steps, counts = face.hvd.elastic, [], []
    shortened = elastic.UpdateBatchStateCallback(state)
    look = face.keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: steps.append(shortened.params["steps"])
    )
    own = [shortened, look, elastic.UpdateEpochStateCallback(state)]
    commit = elastic.CommitStateCallback(state, batches_per_commit=2)
    fit(face.model(face.sgd()), [*others[:1], *own, *others[1:], commit, counting(face, counts)], epochs)
    assert steps == counts, "what callbacks are told"
    return counts


def test_an_interrupted_epoch_has_the_batches_that_are_left(face: Face) -> None:
    state = State(batch=2, epoch=3, commits=[])
    assert run(face, state, 2) == [2, 4]
    assert state.commits == [(3, 3), (4, 0), (4, 1), (4, 3), (5, 0)]


def test_an_epoch_that_is_not_interrupted_is_a_whole_one(face: Face) -> None:
    state = State(batch=0, epoch=0, commits=[])
    assert run(face, state, 1) == [4]
    assert state.commits == [(0, 1), (0, 3), (1, 0)]


def test_a_fit_that_failed_within_a_shortened_epoch_leaves_nothing_behind(face: Face) -> None:
    state, counts = State(batch=2, epoch=0, commits=[]), []
    model = face.model(face.sgd())
    shortened = face.hvd.elastic.UpdateBatchStateCallback(state)

    def fail(*_: Any, **__: Any) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(model, [shortened, face.keras.callbacks.LambdaCallback(on_train_batch_end=fail)])
    state.batch = 0
    fit(model, [shortened, counting(face, counts)])
    assert counts == [4]


@pytest.mark.parametrize("is_first", [True, False])
def test_training_that_another_callback_stops_stays_stopped(face: Face, is_first: bool) -> None:
    def end(*_: Any, **__: Any) -> None:
        """As EarlyStopping does."""
        stop.model.stop_training = True

    stop = face.keras.callbacks.LambdaCallback(on_epoch_end=end)
    others = [stop] if is_first else [face.keras.callbacks.Callback(), stop]
    assert run(face, State(batch=3, epoch=0, commits=[]), 3, *others) == [1]


def test_a_commit_comes_after_one_batch_or_more(face: Face) -> None:
    with pytest.raises(ValueError, match="batches_per_commit"):
        face.hvd.elastic.CommitStateCallback(State(), batches_per_commit=0)


def test_sync_gives_all_ranks_rank_0s_model_and_optimizer(face: Face) -> None:
    def everything() -> Any:
        return flat([*model.get_weights(), *optimizer_variables(model)])

    rank = face.hvd.rank()
    model = face.model(face.hvd.DistributedOptimizer(face.keras.optimizers.Adam(0.01)))
    state = face.hvd.elastic.KerasState(model, word=f"of rank {rank}", counts=[rank])
    fit(model, [])
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, rank, np.float32))
    state.word = "not committed"
    state.sync()
    assert (state.word, state.counts) == ("of rank 0", [0])
    assert not flat(model.get_weights()).any(), "rank 0's"
    assert face.same_everywhere(model.get_weights())
    synchronised = everything()
    fit(model, [])
    assert (flat(model.get_weights()) != 0).any()
    state.restore()  # what sync() gave
    assert (everything() == synchronised).all()
