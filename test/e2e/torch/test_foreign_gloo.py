"""A Gloo of somebody else in the global symbol scope, as a framework may bring it (facts: PyTorch carries one)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from horovod._common.native import core
from jobs import run_to_end

NEEDED = ("nm", "cc")


@pytest.fixture(scope="module")
def foreign_gloo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with every Gloo symbol that the core uses; each function of it ends the process."""
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", core.__file__], capture_output=True, text=True, check=True
    ).stdout
    symbols = [line.split()[-1].split("@")[0] for line in listing.splitlines() if "N4gloo" in line or "NK4gloo" in line]
    assert symbols
    folder = tmp_path_factory.mktemp("foreign")
    source = folder / "foreign.c"
    lines = ["#include <stdlib.h>"]
    for symbol in symbols:
        is_data = symbol.startswith(("_ZTI", "_ZTV"))
        lines.append(f"void *{symbol}[8];" if is_data else f"void {symbol}(void) {{ _Exit(99); }}")
    source.write_text("\n".join(lines) + "\n")
    library = folder / "libforeign.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", str(library), str(source)], check=True)
    return library


def poisoned(library: Path, rest: str) -> str:
    return f"import ctypes; ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)\n{rest}\n"


def test_the_core_keeps_to_its_own_gloo(foreign_gloo: Path, horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    use = (
        "import torch, horovod.torch as hvd\nfrom horovod._common.native import core\n"
        "hvd.init()\nprint(hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist(), core.gloo_library(), flush=True)"
    )
    script.write_text(poisoned(foreign_gloo, use))
    job = horovodrun(2, str(script))
    assert job.code == 0, job.text
    assert job.out.count("[2.0, 2.0, 2.0]") == 2
    assert "libforeign" not in job.out


def test_a_core_that_was_bound_to_it_refuses_to_load(foreign_gloo: Path) -> None:
    use = (
        "from horovod import _load\n_load._global_gloo_symbol = lambda: None\n"
        "try:\n    _load.load_core()\nexcept ImportError as error:\n    print(error)"
    )
    job = run_to_end([sys.executable, "-c", poisoned(foreign_gloo, use)])
    assert job.code == 0, job.text
    assert "libforeign.so" in job.out, job.text
    assert "not to its own libgloo" in job.out
