"""horovodrun under its old name in Python."""

from __future__ import annotations

import os
import subprocess
import sys

from horovod import _missing
from horovod._function_job._caller import find_launcher

__all__ = ["check_build", "is_gloo_used", "run_commandline"]

__getattr__ = _missing.getattr_for(__name__, "CACHE_FOLDER _run _run_elastic _run_static parse_args run_controller")


def run_commandline() -> None:
    """Becomes horovodrun with the arguments of this process. It does not return."""
    launcher = find_launcher()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(launcher, ["horovodrun", *sys.argv[1:]])


def check_build(verbose: bool) -> None:
    """Prints what this build supports, as `horovodrun --check-build` does, and exits; `verbose`: why not the rest."""
    command = [find_launcher(), "--check-build", *(["--verbose"] if verbose else [])]
    print(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout, end="")
    sys.exit(0)


def is_gloo_used(use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None) -> bool:
    """Whether a job runs without MPI: always. `use_gloo`, `use_mpi` and `use_jsrun`, of old scripts, decide nothing."""
    del use_gloo, use_mpi, use_jsrun
    return True


if __name__ == "__main__":  # python -m horovod.runner.launch
    run_commandline()
