"""A rank: an actor that calls functions one after another."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horovod import _env
from horovod._common import session, uncaught
from horovod.ray import ray_logger

__all__ = ["BaseHorovodWorker"]


class BaseHorovodWorker:
    """One rank of a job, in a process of its own; an executor makes an actor of this class for each.

    Args:
        world_rank: Its rank.
        world_size: The number of ranks.
    """

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        self.update_env_vars(
            {"HOROVOD_HOSTNAME": self.node_id(), "HOROVOD_RANK": world_rank, "HOROVOD_SIZE": world_size}
        )

    def node_id(self) -> str:
        """Ray's id of the node that this runs on."""
        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        """The name of the host that this runs on."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """The GPUs that Ray has given to this worker."""
        return list(ray.get_gpu_ids())

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Sets the variables `env_vars` in this process, each value as a text."""
        _env.apply({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """The environment of this process."""
        return _env.all_with_prefix("")

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps `executable_cls(*executable_args, **executable_kwargs)` for execute(); nothing without a class."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """The result of `func(executable)`; the executable is None without a class.

        What it raises ends the Horovod session of this process, so that the other ranks do not wait for it: they raise
        HorovodInternalError with this rank's reason. A later call may begin a new session.
        """
        try:
            return func(self.executable)
        except SystemExit as leaving:
            if leaving.code in (None, 0):
                return None
            error = RuntimeError(f"the function ended by sys.exit({leaving.code!r})")
            _end_session(error)
            raise error from leaving
        except BaseException as error:
            _end_session(error)
            raise

    def set_queue(self, queue: ray_logger.Sink | None) -> None:
        """ray_logger.log() puts what it is given into `queue`, an object with put(); None: nobody listens."""
        ray_logger.configure(queue)


def _end_session(error: BaseException) -> None:
    uncaught.announce(error)
    session.shutdown()
