"""Mistakes get an answer that says what to do, and what is right gets none."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from documented import undocumented
from horovod._common.arrays import ArrayCollectives
from horovod._common.gradient_options import Options
from horovod._keras import private
from horovod._keras.reduction import Reduction
from keras_mistakes import *  # noqa: F403  the tests that tf.keras has too
from keras_world import ROWS, assert_usable, fit, make_model, my_rows

callbacks = hvd.callbacks
optimizers = keras.optimizers


def test_keras_has_all_that_is_used_of_its_inside() -> None:
    """A name that this version of Keras has lost is one more line in horovod/_keras/private.py."""
    assert private.missing(keras, make_model(optimizers.SGD(0.1))) == []
    assert private.missing(SimpleNamespace()) == [], "tf.keras of Keras 2 has no __version__"


def test_a_name_that_keras_has_lost_is_said_with_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(private._NAME_TABLES, "keras.src.api_export", ("NO_SUCH_TABLE",))
    with pytest.warns(RuntimeWarning, match=rf"api_export\.NO_SUCH_TABLE, which Keras {keras.__version__} does not"):
        private.check(keras)


def test_help_answers_for_every_public_name() -> None:
    assert undocumented(hvd, hvd.callbacks, hvd.elastic) == []


def test_no_compression_may_be_said_with_none() -> None:
    model = make_model(hvd.DistributedOptimizer(optimizers.SGD(0.05), compression=None))
    fit(model, my_rows(), ROWS)
    assert_usable()


@pytest.mark.usefixtures("on_jax", "several_ranks")
def test_a_refusal_leaves_no_array_behind_that_is_still_written() -> None:
    collectives, size = ArrayCollectives("test"), hvd.size()
    first, second = np.ones(3, np.float32), np.ones(3, np.float32)
    groups = {"a": [np.ones(2, np.float32)], "b": [np.ones(2, np.uint16)]}
    if hvd.rank() > 0:
        collectives.allreduce_([first], ["refused"], hvd.Sum)
        collectives.broadcast_([second], ["refused"], 1)
    else:
        with pytest.raises(ValueError, match="refused"):
            collectives.allreduce_([first, first.copy()], ["refused", "refused"], hvd.Sum)
        with pytest.raises(ValueError, match="refused"):
            collectives.broadcast_([second, second.copy()], ["refused", "refused"], 1)
        with pytest.raises(ValueError, match="uint16"):  # before anything is sent
            collectives.grouped_allreduce_(groups, hvd.Sum, 1.0, 1.0, 0)
    assert first.tolist() == [size] * 3
    own = np.ones(2, np.float32)
    collectives.grouped_allreduce_({"a": [own]}, hvd.Sum, 1.0, 1.0, 0)
    assert own.tolist() == [size] * 2


@pytest.mark.usefixtures("on_torch", "several_ranks")
def test_a_refused_gradient_leaves_none_of_the_others_under_way() -> None:
    """Their names are free again, and nobody writes to them later."""
    import torch

    from horovod._keras.torch import BACKEND

    reduce = BACKEND.reducer("refused", Options(compression=hvd.Compression.none, op=hvd.Sum))
    assert isinstance(reduce, Reduction)
    first, strange = torch.ones(3), torch.ones(3, dtype=torch.complex64)
    for again in (False, True):
        with pytest.raises(ValueError, match="complex64"):
            reduce.communicate([first, strange], ["refused_0", "refused_1"], ())
        assert first.tolist() == [hvd.size() ** (1 + again)] * 3


@pytest.mark.usefixtures("not_on_jax")
def test_one_way_of_adding_up_at_a_time() -> None:
    plain = optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for optimizer in (plain, optimizers.LossScaleOptimizer(plain)):
        with pytest.raises(ValueError, match=r"backward_passes_per_step=2 .* gradient_accumulation_steps=2 .*use one"):
            hvd.PartialDistributedOptimizer(optimizer, backward_passes_per_step=2)


def test_local_layers_must_be_layers() -> None:
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedOptimizer(optimizers.SGD(0.05), local_layers="first")
