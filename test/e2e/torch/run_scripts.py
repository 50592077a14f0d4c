"""One rank of a world that runs scripts one after another, each as if it were the program: `run_scripts.py A.py B.py ...`

A script finds the process as a new one would be in what it could notice: no session, torch's defaults, its own argv. What
it leaves pending fails it. After each that succeeded, every rank prints `script ok: NAME`.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import torch

from horovod import _core
from rank_world import check_nothing_is_left


def run(script: Path) -> None:
    threads = torch.get_num_threads()
    sys.argv = [str(script)]
    try:
        with warnings.catch_warnings():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    check_nothing_is_left(sets_too=False)  # a program may end with the sets it has made
    _core.shutdown()
    torch.set_num_threads(threads)
    assert torch.get_default_dtype() is torch.float32, f"{script.name} left another default type"
    print(f"script ok: {script.stem}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        run(Path(name))
