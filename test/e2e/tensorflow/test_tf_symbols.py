"""Nothing of ours meets another copy of itself: torch brings Gloo, both frameworks bring protobuf and absl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from horovod._common.native import core

SCRIPTS = Path(__file__).parent / "scripts"
CORE = Path(core.__file__)
OPS = CORE.parent / "tensorflow" / "_ops.so"
QUERIES = """
is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous mpi_threads_supported mpi_enabled
mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built reduce_op_average reduce_op_sum
reduce_op_adasum reduce_op_min reduce_op_max reduce_op_product
""".split()
EXPORTED = {
    CORE: {"PyInit__core", "hvd_tensorflow_register", "hvd_tensorflow_register_xla"}
    | {f"horovod_{name}" for name in QUERIES},
    OPS: {"hvd_op_library_problem"},
}


def symbols(library: Path, which: str) -> set[str]:
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    listing = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


@pytest.mark.parametrize("library", EXPORTED, ids=lambda library: library.name.split(".")[0])
def test_our_libraries_show_their_entry_points_and_nothing_else(library: Path) -> None:
    """Weak symbols count too: the loader would let another library's take their place."""
    assert symbols(library, "--defined-only") == EXPORTED[library]


@pytest.mark.parametrize("library", EXPORTED, ids=lambda library: library.name.split(".")[0])
def test_our_libraries_take_nothing_from_a_framework(library: Path) -> None:
    for symbol in symbols(library, "--undefined-only"):
        for theirs in ("absl", "protobuf", "tensorflow", "TF_", "TFE_", "torch", "c10", "xla"):
            assert theirs not in symbol, symbol


@pytest.mark.parametrize("first", ["torch", "tensorflow"])
def test_torch_and_tensorflow_share_a_session_in_both_orders(horovodrun: Any, first: str) -> None:
    """gloo_library() asks dladdr where the Gloo functions that the core calls are."""
    job = horovodrun(2, str(SCRIPTS / "both_frameworks.py"), first)
    assert job.code == 0, job.text
    assert job.out.count("both") == 2, job.text
    assert "libgloo" in job.out
