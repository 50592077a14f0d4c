"""Data modules by the names that scripts import them by."""

from __future__ import annotations

from horovod.spark.common.datamodule import DataModule, ParquetDataModule, PetastormDataModule

__all__ = ["DataModule", "ParquetDataModule", "PetastormDataModule"]
