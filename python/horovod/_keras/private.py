"""Everything that Horovod uses of Keras beyond its public interface, and what this version of Keras lacks of it."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

__all__ = ["check", "hdf5_format", "loss_scale_classes", "missing", "save_as", "trace_again", "trainable_variables"]

TESTED = "3.15.1"  # the newest Keras that the tests have run with

# Keras' tables of the public and the registered names of classes, which are in saved files.
_NAME_TABLES = {
    "keras.src.api_export": ("REGISTERED_OBJS_TO_NAMES",),
    "keras.src.saving.object_registration": ("GLOBAL_CUSTOM_NAMES", "_GLOBAL_CUSTOM_NAMES"),
    "tf_keras.src.saving.object_registration": ("_GLOBAL_CUSTOM_NAMES",),
}
_HDF5 = "keras.src.legacy.saving.legacy_h5_format"
_HDF5_WEIGHTS = "load_optimizer_weights_from_hdf5_group"


def _module(name: str) -> Any:
    """The module; None if there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing(keras: Any, model: Any = None) -> list[str]:
    """The names that Horovod uses and this version of Keras lacks. None for Keras 2, which has no new versions.

    `model`: one that was compiled with an optimizer; some names exist in instances only.
    """
    if not hasattr(keras, "ops"):
        return []
    tables = [(module, names) for module, names in _NAME_TABLES.items() if module.startswith("keras.")]
    wanted: list[tuple[Any, str, tuple[str, ...]]] = [(_module(module), module, names) for module, names in tables]
    wanted += [(_module(_HDF5), _HDF5, (name,)) for name in ("load_model_from_hdf5", _HDF5_WEIGHTS)]
    for owner, names in (
        (keras.optimizers.Optimizer, ("stateless_apply", "finalize_variable_values", "scale_loss")),
        (keras.optimizers.LossScaleOptimizer, ("apply", "stateless_apply")),
        (keras.Model, ("compile", "jit_compile")),
    ):
        wanted += [(owner, owner.__name__, (name,)) for name in names]
    if model is not None:
        wanted += [(model, "model", ("train_function",)), (model.optimizer.iterations, "variable", ("_value",))]
        wanted += [(model.optimizer, "optimizer", (name,)) for name in ("_trainable_variables", "_learning_rate")]
    return [f"{owner}.{names[0]}" for thing, owner, names in wanted if not any(hasattr(thing, name) for name in names)]


def check(keras: Any) -> None:
    """Warns if Keras lacks a name, so that a function of this module cannot work."""
    lacking = missing(keras)
    if lacking:
        warnings.warn(
            f"Horovod was made for Keras {TESTED} and uses {', '.join(lacking)}, which Keras {keras.__version__} does "
            f"not have: use Keras {TESTED}, or a newer Horovod",
            RuntimeWarning,
            stacklevel=3,
        )


def compile_owner(keras: Any) -> Any:
    """The class that defines model.compile()."""
    return next((cls for cls in keras.Model.__mro__ if "compile" in vars(cls)), None)


def trainable_variables(optimizer: Any) -> list[Any]:
    """The variables that an optimizer of Keras 3 was built for."""
    return list(optimizer._trainable_variables)


def learning_rate_function(optimizer: Any) -> Any:
    """The schedule or function that computes the learning rate; None if it is a number."""
    own = getattr(getattr(optimizer, "inner_optimizer", optimizer), "_learning_rate", None)
    return own if callable(own) else None


def trace_again(model: Any) -> None:
    """Makes the next fit() trace the train step again."""
    if getattr(model, "train_function", None) is not None:
        model.train_function = None


def hdf5_format() -> Any:
    """The module with which Keras 3 reads .h5 files."""
    return importlib.import_module(_HDF5)


def save_as(made: type, base: type) -> None:
    """Makes saved models name the class of Keras, so that they load without Horovod and on any backend."""
    # On torch, instances are of a subclass of the public class.
    known = [one for one in base.__mro__ if one.__name__ == base.__name__]
    for attribute, names in list(vars(base).items()):  # Keras 2 stores public names in the class
        if attribute.endswith(("_api_names", "_api_names_v1")):
            setattr(made, attribute, names)
    for module, tables in _NAME_TABLES.items():
        for table in (getattr(sys.modules.get(module), name, {}) for name in tables):
            found = next((table[one] for one in known if one in table), None)
            if found is not None:
                table[made] = found


def loss_scale_classes(base: type) -> list[Any]:
    """All LossScaleOptimizer classes of the Keras package that defines `base`."""
    packages = {one.__module__.partition(".")[0] for one in base.__mro__}
    found = []
    for package in (sys.modules[name] for name in ("keras", "tf_keras") if name in packages and name in sys.modules):
        public = package.mixed_precision.LossScaleOptimizer
        if hasattr(package, "ops"):  # Keras 3
            found.append(public)
            continue
        # Keras 2 has a public one for its legacy optimizers, and in the same module one for the others.
        module = sys.modules[public.__module__]
        found += [getattr(module, n) for n in ("LossScaleOptimizer", "LossScaleOptimizerV3") if hasattr(module, n)]
    return found
