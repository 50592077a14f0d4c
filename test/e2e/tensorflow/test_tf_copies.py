"""A dense CPU tensor is not copied beyond the way into the fusion buffer and out of it: counted, not assumed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


def test_dense_tensors_are_not_copied_on_their_way(horovodrun: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C compiler to build the counter of copies")
    library = tmp_path / "count_copies.so"
    source = str(SCRIPTS / "count_copies.c")
    flags = ["-shared", "-fPIC", "-O1", "-fno-builtin", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, "-x", "c", source, "-o", str(library), "-ldl"], check=True)
    job = horovodrun(2, str(SCRIPTS / "copies.py"), env={"LD_PRELOAD": str(library)})
    assert job.code == 0, job.text
    assert job.out.count("counted") == 2, job.text
