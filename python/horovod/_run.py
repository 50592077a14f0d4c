"""`horovod.run`: runs a function on several processes from Python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod._function_job._caller import command_of, run_function_job
from horovod._function_job._message import dump_task

_VERBOSE = 2  # from here on horovodrun's --verbose

_NEW_NAMES = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}


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
    network_interfaces: Sequence[str] | str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on `num_proc` ranks and returns their results, a list in rank order.

    Each rank is a new process of `executable` (default: this Python), started by horovodrun; what they print comes with
    the rank before each line. The function and its results are pickled by cloudpickle, so functions of a script or
    notebook work, too; at most 1 GiB goes to a rank and 4 GiB come back from each.

    Of horovodrun's flags `hosts` is -H, `verbose` from 2 on --verbose, and `hostfile`, `start_timeout` (seconds),
    `ssh_port`, `ssh_identity_file`, `output_filename` (a folder) and `network_interfaces` (a list, or a text with
    commas) have the same names. `disable_cache` and `use_gloo` have nothing to decide, and `mpi_args` is ignored with a
    warning. `np`, `min_np`, `max_np` and `network_interface` are old names of `num_proc`, `min_num_proc`,
    `max_num_proc` and `network_interfaces`.

    With `min_num_proc` or `host_discovery_script` the job is elastic: ranks may come and go, `func` trains by
    `hvd.elastic.run`, and a process that is started later gets the same arguments. The results are those of the ranks
    of the last round, as many as there were. `max_num_proc`, `slots` (--slots-per-host), `reset_limit` and
    `cooldown_range` (two numbers, --blacklist-cooldown-range) are for such jobs alone.

    RuntimeError when the job fails: it has "Process name: <rank>", of an elastic job "Process name: <host>[<local
    rank>]", and "Exit code: <code>" of the rank that failed first, whose exception is its `__cause__`, with its
    traceback. Ctrl-C is passed on to the ranks, and raised once they have ended. TypeError, ValueError: `func` is no
    function, or cannot be pickled, a number of processes is not a whole number from 1 on, `hosts` with `hostfile`,
    `use_gloo` with `use_mpi`, `use_mpi` at all, an argument of elastic jobs alone in one that is not, or what
    horovodrun refuses, such as hosts with too few slots.
    """
    deprecated = {"np": np, "min_np": min_np, "max_np": max_np, "network_interface": network_interface}
    for name, value in deprecated.items():
        if value is not None:
            warnings.warn(f"horovod.run: {name} is called {_NEW_NAMES[name]}", DeprecationWarning, stacklevel=2)
    num_proc = num_proc if np is None else np
    _refuse_contradictions(hosts, hostfile, use_gloo, use_mpi)
    if mpi_args is not None:
        warnings.warn(f"horovod.run: mpi_args={mpi_args!r} is ignored: there is no MPI", stacklevel=2)
    elastic = {
        "min_num_proc": min_num_proc if min_np is None else min_np,
        "max_num_proc": max_num_proc if max_np is None else max_np,
        "slots": slots,
        "reset_limit": reset_limit,
        "cooldown_range": cooldown_range,
        "host_discovery_script": host_discovery_script,
    }
    _check_elastic_arguments(elastic)
    if num_proc is not None:
        _check_count("num_proc", num_proc)
    for name in ("min_num_proc", "max_num_proc"):
        if elastic[name] is not None:
            _check_count(name, elastic[name])
    interfaces = network_interfaces if network_interface is None else network_interface
    if isinstance(interfaces, str):
        interfaces = interfaces.split(",")
    flags = {
        "--num-proc": num_proc,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--network-interfaces": ",".join(interfaces) if interfaces else None,
        "--min-np": elastic["min_num_proc"],
        "--max-np": elastic["max_num_proc"],
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--host-discovery-script": host_discovery_script,
    }
    argv = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    if verbose is not None and verbose >= _VERBOSE:
        argv.append("--verbose")
    if cooldown_range is not None:
        argv += ["--blacklist-cooldown-range", *(str(seconds) for seconds in cooldown_range)]
    payload = dump_task(func, args, kwargs or {})
    return run_function_job(argv, command_of(executable or sys.executable), payload)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"horovod.run: {name}={value!r}, expected a number of processes: a whole number from 1 on")


def _check_elastic_arguments(elastic: Mapping[str, Any]) -> None:
    if elastic["min_num_proc"] is not None or elastic["host_discovery_script"] is not None:
        cooldown = elastic["cooldown_range"]
        if cooldown is not None and len(cooldown) != 2:
            raise ValueError(f"horovod.run: cooldown_range={cooldown!r}, expected two numbers of seconds")
        return
    for name, given in elastic.items():
        if given is not None:
            raise ValueError(
                f"horovod.run: {name}={given!r} is for elastic jobs alone: give min_num_proc or host_discovery_script "
                "as well"
            )


def _refuse_contradictions(
    hosts: str | None, hostfile: str | None, use_gloo: bool | None, use_mpi: bool | None
) -> None:
    if hosts is not None and hostfile is not None:
        raise ValueError("horovod.run: give either hosts or hostfile, not both")
    if use_gloo and use_mpi:
        raise ValueError("horovod.run: give either use_gloo or use_mpi, not both")
    if use_mpi:
        raise ValueError("horovod.run: use_mpi=True, but this build has no MPI; leave it out")
