"""`horovod.run`: runs a function on several processes from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Runs `func(*args, **kwargs)` on `num_proc` ranks and returns their results, a list in rank order. Not built yet.

    The other arguments are those of horovodrun, with the same names; `np`, `min_np` and `max_np` are old names of
    `num_proc`, `min_num_proc` and `max_num_proc`. ValueError: `hosts` with `hostfile`, `use_gloo` with `use_mpi`, or
    `use_mpi` at all. Else NotImplementedError, which says how to start a script.
    """
    if hosts is not None and hostfile is not None:
        raise ValueError("horovod.run: give either hosts or hostfile, not both")
    if use_gloo and use_mpi:
        raise ValueError("horovod.run: give either use_gloo or use_mpi, not both")
    if use_mpi:
        raise ValueError("horovod.run: use_mpi=True, but this build has no MPI; leave it out")
    raise NotImplementedError(
        "horovod.run() is not built yet. Put the function into a script and start it with "
        f"`horovodrun -np {np if np is not None else num_proc} python script.py`."
    )
