"""Estimators and models on disk, as Spark ML's stages are: metadata in JSON, with one pickle of all values in base64.

One, so that a model and an optimizer of its parameters stay together.

Loading one runs what its pickles say: load only what you trust. What lies in a store of horovod.spark, and who runs
ranks, are not written: a store may hold credentials.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import cloudpickle
from pyspark.ml.param import Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

if TYPE_CHECKING:
    from horovod.spark.common.params import WithParameters

_NOT_WRITTEN = ("backend", "store")
_PICKLE = "pickle"


class Persistent(MLWritable, MLReadable[Any]):  # type: ignore[misc]
    """Has write(), save(), read() and load()."""

    def _encoded(self, name: str, value: Any) -> Any:
        """What is pickled for the parameter `name`."""
        return value

    def _decoded(self, name: str, value: Any) -> Any:
        """The value of the parameter `name` from what was pickled."""
        return value

    def write(self) -> MLWriter:
        """Spark ML's writer: `.overwrite().save(path)`."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        """Spark ML's reader: `.load(path)`."""
        return _Reader(cls)


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802
        instance = self._instance
        values = {
            param.name: instance._encoded(param.name, value)
            for param, value in instance._paramMap.items()
            if param.name not in _NOT_WRITTEN
        }
        written = {_PICKLE: base64.b64encode(cloudpickle.dumps(values)).decode()}
        extra: dict[str, Any] = {"defaultParamMap": {}}
        DefaultParamsWriter.saveMetadata(instance, path, self.sparkSession, extra, written)


class _Reader(MLReader[Any]):  # type: ignore[misc]
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        kind = self._kind
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        expected = f"{kind.__module__}.{kind.__name__}"
        if metadata["class"] != expected:
            raise ValueError(f"{path} has a {metadata['class']}, expected a {expected}")
        made: WithParameters = kind()
        assert isinstance(made, Params)
        made._resetUid(metadata["uid"])
        for name, value in cloudpickle.loads(base64.b64decode(metadata["paramMap"][_PICKLE])).items():
            made._paramMap[made.getParam(name)] = made._decoded(name, value)
        return made
