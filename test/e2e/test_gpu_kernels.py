"""The kernels for GPUs, as the CUDA toolkit of this machine sees them; without it there is nothing to look at."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "runtime" / "collectives" / "cuda" / "kernels.cu"
KERNELS = ("hvd_copy", "hvd_scaled_copy")


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout + done.stderr


def test_kernels_assemble_for_every_architecture(tmp_path: Path) -> None:
    nvcc, ptxas = shutil.which("nvcc"), shutil.which("ptxas")
    if nvcc is None or ptxas is None:
        pytest.skip("no nvcc and ptxas on this machine: the kernels for GPUs were not assembled")
    ptx = tmp_path / "kernels.ptx"
    output_of(
        nvcc, "-std=c++20", "-O3", "--fmad=false", "-Werror", "all-warnings", f"-I{ROOT}", f"-I{ROOT}/runtime/include",
        "-ptx", "-arch=compute_75", "-o", ptx, SOURCE,
    )  # fmt: skip
    architectures = output_of(nvcc, "--list-gpu-code").split()
    assert {"sm_75", "sm_120"} <= set(architectures)
    for architecture in architectures:
        report = output_of(ptxas, "-v", f"-arch={architecture}", "-o", tmp_path / "kernels.cubin", ptx)
        for kernel in KERNELS:
            assert f"Compiling entry function '{kernel}' for '{architecture}'" in report
        # Everything in registers: a stack or a spill means that something is indexed at run time.
        assert report.count("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == len(KERNELS), report
