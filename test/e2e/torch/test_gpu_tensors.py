"""CUDA tensors from Python to the core and back, with the fake driver. No GPU has run this."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def build_fake_driver(folder: Path) -> Path:
    library = folder / "libfake_cuda.so"
    sources = [ROOT / "test/support/fake_gpu" / f"fake_{part}.cc" for part in ("driver", "driver_memory", "machine")]
    subprocess.run(
        ["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", f"-I{ROOT}",
         f"-I{ROOT}/runtime/include", "-o", library, *sources],
        check=True, timeout=120,
    )  # fmt: skip
    return library


def test_gpu_tensors_are_handed_over_with_their_stream(horovodrun: Any, tmp_path: Path) -> None:
    driver = str(build_fake_driver(tmp_path))
    script = ROOT / "test/e2e/torch/gpu_tensors_worker.py"
    job = horovodrun(
        2, str(script), driver, env={"HOROVOD_CUDA_DRIVER": driver, "HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
    )
    assert job.code == 0, job.text
    assert job.out.count("gpu tensors ok") == 2, job.text
