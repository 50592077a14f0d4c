"""The training job of test_tf_data_service.py: reads rows 0..ROWS-1 through the compute job, checks who got which.

Arguments: the configuration file, then ways to read, one after another.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

ROWS = 60


def rows_of(dataset: Any) -> list[int]:
    return [int(row) for row in dataset]


def read(config: TfDataServiceConfig, way: str) -> None:
    rank, size = hvd.rank(), hvd.size()
    dataset = tf.data.Dataset.range(ROWS).map(lambda row: row * 10)
    everything = [10 * row for row in range(ROWS)]
    if way == "own":  # each rank has its own pass, shared by the workers of its dispatcher
        rows = rows_of(send_to_data_service(dataset, config, rank, size))
        assert sorted(rows) == everything, rows
    elif way == "shared":  # one pass for all ranks
        rows = rows_of(dataset.send_to_data_service(config, rank, size, reuse_dataset=True))
        everybodys = hvd.allgather_object(rows)
        passes = config.dispatchers
        assert sorted(row for rows in everybodys for row in rows) == sorted(everything * passes), everybodys
    elif way == "turns":  # ranks get one row each, in turn, from one worker after another
        endless = dataset.repeat().send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True)
        rows = rows_of(endless.take(20))
        assert len(rows) == 20
        everybodys = hvd.allgather_object(rows)
        if config.dispatchers == 1:
            assert len({tuple(one) for one in everybodys}) == size, everybodys
    elif way == "training":  # the dispatchers run here
        with pytest.raises(RuntimeError, match="tf_data_service"):
            send_to_data_service(dataset, config, rank, size)
        with tf_data_service(config, rank) as address:
            distribute = tf.data.experimental.service.distribute
            rows = rows_of(dataset.apply(distribute(processing_mode="distributed_epoch", service=address)))
            assert sorted(rows) == everything, rows
            hvd.allreduce(tf.ones([1]))  # no dispatcher leaves before all have read
    else:
        raise SystemExit(f"unknown way {way}")
    assert hvd.allgather_object(len(rows))[rank] == len(rows)
    if rank == 0:
        print(f"read by {size} ranks: {way}")


def main(config_file: str, *ways: str) -> None:
    config = TfDataServiceConfig.read(config_file, wait_for_file_creation=True)
    hvd.init()
    for way in ways:
        read(config, way)
    if hvd.rank() == 0:
        config.compute_client().shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
