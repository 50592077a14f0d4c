"""The parameters of estimators and of the models that they return, as parameters of Spark ML.

Each parameter is a Param of its class and has a setter and a getter, `setBatchSize(64)` and `getBatchSize()`; a setter
returns its object. A constructor takes them by name.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.ml.param import Param, Params

__all__ = ["EstimatorParams", "ModelParams", "Parameter", "WithParameters"]

Check = Callable[[Any], Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    Args:
        name: Of the Param, and of the constructor's argument.
        doc: What it means.
        default: Its value unless it is set.
        check: Gets a value that is not None, returns what is kept, or raises ValueError or TypeError.
        accessor: What may follow get and set in the place of the name in CamelCase.
    """

    name: str
    doc: str
    default: Any = None
    check: Check | None = None
    accessor: str | None = None

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What follows get and set in the names of methods."""
        regular = "".join(word.capitalize() for word in self.name.split("_"))
        return (regular, self.accessor) if self.accessor else (regular,)


def _expected(value: Any, what: str) -> ValueError:
    return ValueError(f"{value!r}, expected {what}")


def _whole(minimum: int) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
            raise _expected(value, f"a whole number of {minimum} or more")
        return int(value)

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, (bool, int)) or value not in (0, 1):
        raise _expected(value, "True or False")
    return bool(value)


def _columns(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _expected(value, "a list of names of columns")
    names = list(value)
    if not all(isinstance(name, str) for name in names):
        raise _expected(names, "a list of names of columns")
    if len(set(names)) != len(names):
        raise _expected(names, "names of columns that differ")
    return names


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _expected(value, "a string")
    return value


def _validation(value: Any) -> float | str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) < 1:
        raise _expected(value, "a fraction from 0 to below 1, or the name of a column")
    return float(value)


def _pool(value: Any) -> str:
    if value not in ("thread", "process", "dummy"):
        raise _expected(value, "'thread', 'process' or 'dummy'")
    return str(value)


def _several(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _expected(value, "a list or a dictionary")
    return value if isinstance(value, dict) else list(value)


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _expected(value, "a function")
    return value


_POSITIVE = _whole(1)

_OF_ESTIMATORS = (
    Parameter("num_proc", "ranks; default: those of the backend", None, _POSITIVE),
    Parameter("backend", "the Backend that runs ranks; default: SparkBackend(num_proc)"),
    Parameter("store", "the Store that has data, checkpoints and logs"),
    Parameter("model", "the model to train"),
    Parameter("optimizer", "the optimizer; its learning rate is multiplied by the number of ranks"),
    Parameter("loss", "the loss, or a list with one for each output"),
    Parameter("loss_weights", "a weight for each loss", None, _several),
    Parameter("metrics", "what is measured beside the loss", (), _several),
    Parameter("gradient_compression", "a class of horovod's Compression"),
    Parameter("sample_weight_col", "the column with a weight for each row", None, _text),
    Parameter("feature_cols", "the columns that the model gets, one for each input", None, _columns),
    Parameter("label_cols", "the columns that the loss gets, one for each output", None, _columns),
    Parameter("label_shapes", "the shape of each label, -1 for the batch", None, list),
    Parameter("continuous_cols", "accepted, without effect", None, _columns),
    Parameter("categorical_cols", "features that are indices: they keep their integer type", None, _columns),
    Parameter("validation", "a fraction of the rows, or a column that is true or above 0 in them", None, _validation),
    Parameter("callbacks", "callbacks of the framework", (), list),
    Parameter("batch_size", "rows of a batch on each rank", 32, _POSITIVE),
    Parameter("val_batch_size", "rows of a batch of validation; default: batch_size", None, _POSITIVE),
    Parameter("epochs", "epochs", 1, _POSITIVE),
    Parameter("train_steps_per_epoch", "steps of an epoch on each rank; default: all rows", None, _POSITIVE),
    Parameter("validation_steps_per_epoch", "steps of a validation on each rank; default: all rows", None, _POSITIVE),
    Parameter("shuffle", "whether the order of rows changes with each epoch", True, _flag),
    Parameter(
        "shuffle_buffer_size", "rows among which each is drawn; default: 64 MiB", None, _POSITIVE, "ShufflingBufferSize"
    ),
    Parameter("random_seed", "for the division of rows, their order and the framework", None, _whole(0)),
    Parameter("verbose", "0: no output, 1: a line for each epoch, 2: also what is prepared", 1, _whole(0)),
    Parameter("partitions_per_process", "files of the written data for each rank", 10, _POSITIVE),
    Parameter("run_id", "the run's folder in the store; one that has a checkpoint is continued", None, _text),
    Parameter("transformation_fn", "changes each batch, a pandas.DataFrame, and returns it", None, _callable),
    Parameter(
        "transformation_edit_fields", "(name, numpy type, shape, nullable) of what transformation_fn adds", None, list
    ),
    Parameter("transformation_removed_fields", "what transformation_fn takes away", None, _columns),
    Parameter("train_reader_num_workers", "threads that read training data", 2, _POSITIVE, "TrainReaderNumWorker"),
    Parameter("val_reader_num_workers", "threads that read validation data", 2, _POSITIVE, "ValReaderNumWorker"),
    Parameter("reader_pool_type", "'dummy': no threads read ahead; 'process' is taken as 'thread'", "thread", _pool),
    Parameter("compress_sparse_cols", "write sparse vectors without their zeros", False, _flag),
    Parameter("inmemory_cache_all", "keep a rank's rows in memory", False, _flag, "InMemoryCacheAll"),
    Parameter("data_module", "the DataModule that reads; default: ParquetDataModule", None, _callable),
    Parameter("use_gpu", "train on GPUs where there are some", True, _flag),
    Parameter("mp_start_method", "accepted, without effect: no processes read data", None, _text),
    Parameter("backward_passes_per_step", "batches of a rank between two reductions", 1, _POSITIVE),
    Parameter("tensorflow_dataset_prefetch_buffer_size", "batches made ahead (Keras)", 0, _whole(0)),
)  # fmt: skip

_OF_MODELS = (
    Parameter("history", "what training has measured"),
    Parameter("model", "the trained model"),
    Parameter("feature_columns", "the columns that the model gets", None, _columns),
    Parameter("label_columns", "the columns whose values it predicts", None, _columns, "LabelColoumns"),
    Parameter("output_cols", "names of the columns with predictions; default: <label>__output", None, _columns),
    Parameter("run_id", "the run that has trained the model", None, _text),
    Parameter("_metadata", "what is known of the columns", None, dict),
)


class WithParameters(Params):  # type: ignore[misc]
    """Makes Params, setters and getters of the `PARAMETERS` that a class and those below it name."""

    PARAMETERS: tuple[Parameter, ...] = ()
    _table: ClassVar[dict[str, Parameter]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("PARAMETERS", ())
        inherited = [table for base in cls.__mro__[1:] if (table := base.__dict__.get("_table"))]
        cls._table = {name: made for table in reversed(inherited) for name, made in table.items()}
        for parameter in own:
            cls._table[parameter.name] = parameter
            setattr(cls, parameter.name, Param(Params._dummy(), parameter.name, parameter.doc, _converter(parameter)))
            for suffix in parameter.suffixes:
                setattr(cls, f"set{suffix}", _setter(parameter))
                setattr(cls, f"get{suffix}", _getter(parameter))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The setters and getters."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._setDefault(**{name: _default(parameter) for name, parameter in self._table.items()})
        self._take(values)

    def _take(self, values: dict[str, Any]) -> None:
        for name in values:
            if name not in self._table:
                near = difflib.get_close_matches(name, self._table, 1)
                meant = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"{type(self).__name__}: there is no argument {name!r}{meant}")
        self._set(**{name: value for name, value in values.items() if value is not None})

    def _check_values(self) -> None:
        """ValueError for a wrong value among those that came with `fit(df, params)`, which Spark does not check."""
        for param, value in self._paramMap.items():
            if value is not None:
                self._paramMap[param] = param.typeConverter(value)

    def value(self, name: str) -> Any:
        """The value of the parameter `name`, or its default."""
        return self.getOrDefault(self.getParam(name))


def _default(parameter: Parameter) -> Any:
    return list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default


def _converter(parameter: Parameter) -> Check | None:
    check = parameter.check
    if check is None:
        return None

    def convert(value: Any) -> Any:
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{parameter.name}: {error}") from error

    return convert


def _sentence(parameter: Parameter) -> str:
    return f"{parameter.doc[0].upper()}{parameter.doc[1:]}."


def _setter(parameter: Parameter) -> Callable[..., Any]:
    def set_value(self: WithParameters, value: Any) -> WithParameters:
        if value is None:
            self.clear(self.getParam(parameter.name))
            return self
        self._set(**{parameter.name: value})
        return self

    what = f"Sets {parameter.name} to `value`; None: to its default."
    set_value.__doc__ = f"{what} {_sentence(parameter)} Returns the object."
    return set_value


def _getter(parameter: Parameter) -> Callable[..., Any]:
    def get_value(self: WithParameters) -> Any:
        return self.value(parameter.name)

    get_value.__doc__ = f"Returns the parameter {parameter.name}. {_sentence(parameter)}"
    return get_value


class EstimatorParams(WithParameters):
    """The parameters that all estimators have."""

    PARAMETERS: tuple[Parameter, ...] = _OF_ESTIMATORS


class ModelParams(WithParameters):
    """The parameters that all trained models have."""

    PARAMETERS: tuple[Parameter, ...] = _OF_MODELS
