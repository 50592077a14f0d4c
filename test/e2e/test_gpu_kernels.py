"""The kernels for GPUs: how a build finds a compiler for them, and what the CUDA toolkit of this machine makes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import DEADLINE_S, program

pytestmark = pytest.mark.takes(43)

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "runtime" / "collectives" / "cuda" / "kernels.cu"
KERNELS = ("hvd_copy", "hvd_scaled_copy")


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
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


def kernels_of_a_build_without_nvcc_in_path(folder: Path) -> str:
    """What CMake says of the kernels, where Python finds packages in `folder`, too."""
    with_nvcc = [place for place in os.environ["PATH"].split(":") if (Path(place) / "nvcc").exists()]
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", folder / "build", "-DHVD_BUILD_LAUNCHER=OFF", f"-DPython_EXECUTABLE={sys.executable}",
         f"-DCMAKE_IGNORE_PATH={';'.join(with_nvcc)}"],
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if "Kernels for GPUs: " in line).split(": ", 1)[1]


def test_a_build_without_nvcc_says_why_it_has_no_kernels(tmp_path: Path) -> None:
    assert kernels_of_a_build_without_nvcc_in_path(tmp_path).startswith("none, because there is no nvcc in PATH")


def test_the_nvcc_of_pypis_package_is_found(tmp_path: Path) -> None:
    nvcc = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    program(nvcc, '#!/bin/sh\n[ "$1" != --list-gpu-code ] || printf "sm_70\\nsm_75\\nsm_90\\n"\n')
    assert kernels_of_a_build_without_nvcc_in_path(tmp_path) == "sm_75 sm_90"
