"""The figures of horovod.bench: nccl-tests' definition of bandwidths, the sizes, and refusals."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from horovod.bench import __main__ as program
from horovod.bench.busbw import OPERATIONS, Row, bus_factor, sizes_of, write_figures


def test_bandwidths_are_those_of_nccl_tests() -> None:
    # 1 GB in 10 ms on 8 ranks.
    row = Row("default", "allreduce", 1_000_000_000, 10_000.0, 8)
    assert row.algbw == pytest.approx(100.0)
    assert row.busbw == pytest.approx(175.0)
    factors = {operation: bus_factor(operation, 4) for operation in OPERATIONS}
    assert factors == {
        "allreduce": 1.5, "allgather": 0.75, "broadcast": 1.0, "reducescatter": 0.75, "alltoall": 0.75,
    }  # fmt: skip
    assert bus_factor("allreduce", 1) == 0.0  # nothing is moved
    assert row.as_json() == {
        "mode": "default", "operation": "allreduce", "bytes": 1_000_000_000, "time_us": 10000.0, "algbw_GBps": 100.0, "busbw_GBps": 175.0,
    }  # fmt: skip


def test_figures_go_into_a_folder_that_is_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "figures.json"
    write_figures(file, {"ranks": 2})
    assert json.loads(file.read_text()) == {"ranks": 2}


def test_sizes_are_a_range_or_a_list() -> None:
    assert sizes_of("4:1G:4")[:3] == [4, 16, 64]
    assert sizes_of("4:1G:4")[-1] == 1 << 30
    assert sizes_of("1K,3m,7") == [1024, 3 << 20, 7]
    for wrong in ("", "0", "4:1G", "4:1G:1", "1T", "a,b", "4::2"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected"):
            sizes_of(wrong)


def test_what_cannot_be_measured_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    assert program.main(["cpu"]) == 2
    assert "expected gpu or network, not 'cpu'" in capsys.readouterr().err
    assert program.main(["gpu", "--operations", "allreduce,gather"]) == 2
    assert "operations gather: expected allreduce, allgather" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert program.main(["gpu"]) == 1
        assert "finds no GPU; --device cpu measures" in capsys.readouterr().err
