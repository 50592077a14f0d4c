"""The driver's part of an elastic job: horovodrun, whose agents run in actors on Ray's nodes."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovod._function_job._caller import command_of, run_function_job
from horovod._function_job._message import dump_task
from horovod.ray import _rsh
from horovod.ray._hosts import HostsFile
from horovod.ray._relay import AgentRelay
from horovod.ray.ray_logger import PickledSink
from horovod.ray.settings import MiniSettings

__all__ = ["ElasticAdapter", "ElasticParams"]

_CALLER = "horovod.ray"
_MORE_S = 10  # than an agent may take, so that what is said of that comes first


@dataclass(frozen=True)
class ElasticParams:
    """How many ranks there may be, and what each of them takes; see RayExecutor."""

    min_workers: int | None  # None: the job is static
    max_workers: int | None
    cpus_per_worker: float
    use_gpu: bool
    gpus_per_worker: int | None
    reset_limit: int | None
    cooldown_range: Sequence[int] | None
    elastic_timeout: int
    override_discovery: bool


class ElasticAdapter:
    """Runs functions on ranks that come and go; between two calls there are none. Used by one thread at a time."""

    def __init__(self, settings: MiniSettings, params: ElasticParams) -> None:
        self._settings = settings
        self._params = params
        self._executable: tuple[Callable[..., Any] | None, Sequence[Any], Mapping[str, Any]] = (None, (), {})
        self._variables: dict[str, str] = {}
        self._folder: str | None = None  # of the last call
        self._discovery: Callable[[], Mapping[str, int]] | None = None
        if not params.override_discovery:
            discovery = getattr(settings, "discovery", None)
            if discovery is None:
                raise ValueError("override_discovery=False, but the settings have no discovery")
            self._discovery = discovery.find_available_hosts_and_slots

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps what the processes of run() get. ValueError for a variable that is more than one line."""
        self._executable = (executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {}))
        self._variables = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        for name, value in self._variables.items():
            if "\n" in value:
                raise ValueError(f"extra_env_vars: {name}={value!r}, expected one line in an elastic job")

    def run(self, func: Callable[[Any], Any], queue: PickledSink | None = None) -> list[Any]:
        """The results of func(executable) of the ranks of the last round. What ranks log goes to `queue`."""
        params = self._params
        resources = {"CPU": params.cpus_per_worker} | ({"GPU": params.gpus_per_worker or 1} if params.use_gpu else {})
        payload = dump_task(_call(func, *self._executable), (), {}, caller=_CALLER)
        with tempfile.TemporaryDirectory(prefix="hvd-") as name:
            self._folder = name
            folder = Path(name)
            hosts = HostsFile(folder / "hosts", resources, params.max_workers, self._discovery)
            hosts.wait_for(params.min_workers or 0, params.elastic_timeout)
            relay = AgentRelay(hosts.place_of, self._seconds_to_start(), queue)
            with hosts, relay:
                command = command_of(sys.executable)
                return run_function_job(self._flags(folder, relay.name), command, payload, caller=_CALLER)

    def run_remote(self, func: Callable[[Any], Any]) -> list[Any]:
        """NotImplementedError: nobody knows yet how many results there will be."""
        raise NotImplementedError("run_remote() is for static jobs: an elastic one has no fixed ranks; use run()")

    def run_single(self, func: Callable[[Any], Any]) -> Any:
        """NotImplementedError: between two calls of run() there are no ranks."""
        raise NotImplementedError("execute_single() is for static jobs: an elastic one has no fixed ranks; use run()")

    def shutdown(self) -> None:
        """Removes the folder of a call that still runs, in an actor that is killed next; else there is nothing."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _seconds_to_start(self) -> float:
        return self._settings.placement_group_timeout_s + self._settings.timeout_s

    def _flags(self, folder: Path, relay: str) -> list[str]:
        params = self._params
        # Ray gives the actors of agents OMP_NUM_THREADS for all the ranks of their node.
        threads = {"OMP_NUM_THREADS": str(max(1, int(params.cpus_per_worker)))}
        variables = folder / "variables"
        with os.fdopen(os.open(variables, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in (threads | self._variables).items())
        flags = {
            "-np": params.min_workers,
            "--min-np": params.min_workers,
            "--max-np": params.max_workers,
            "--reset-limit": params.reset_limit,
            "--elastic-timeout": params.elastic_timeout,
            "--start-timeout": int(self._seconds_to_start()) + _MORE_S,
            "--hostfile": folder / "hosts",
            "--env-file": variables,
            "--network-interfaces": ",".join(self._settings.nics or ()) or None,
            "--rsh": shlex.join([sys.executable, "-I", "-S", _rsh.__file__, relay, "{host}"]),
        }
        words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
        if params.cooldown_range is not None:
            words += ["--blacklist-cooldown-range", *map(str, params.cooldown_range)]
        return [*words, "--watch-hostfile", "--no-env"]


def _call(
    func: Callable[[Any], Any], kind: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], Any]:
    def call() -> Any:
        return func(kind(*args, **kwargs) if kind is not None else None)

    return call
