"""What an executor is told of the job beside its workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from horovod.runner.common.util.secret import make_secret_key
from horovod.runner.common.util.timeout import Timeout

__all__ = ["MiniSettings", "create_settings"]

_START_MESSAGE = (
    "Timed out waiting for {activity}. Please check that the nodes of the Ray cluster answer; a larger timeout_s of "
    "create_settings() waits longer."
)


@dataclass
class MiniSettings:
    """The settings of a RayExecutor; `nics`, `timeout_s` and `placement_group_timeout_s` as for create_settings().

    `verbose`, `ssh_port`, `ssh_identity_file` and `key` have no effect: Ray starts the workers, and every job makes a
    secret of its own. `elastic` says whether the number of workers may change.
    """

    nics: Iterable[str] | None = None
    verbose: int = 1
    key: bytes = field(default_factory=make_secret_key, repr=False)
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False

    def __post_init__(self) -> None:
        for name in ("timeout_s", "placement_group_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name}={value!r}, expected a number of seconds above 0")
        if isinstance(self.nics, str):
            raise ValueError(f"nics={self.nics!r}, expected a list of names of network interfaces")
        # An iterator would be empty when it is asked the second time, and none stand for all of them where one listens.
        self.nics = list(self.nics or ()) or None

    @property
    def start_timeout(self) -> Timeout:
        """A deadline that begins now, timeout_s seconds away."""
        return Timeout(self.timeout_s, _START_MESSAGE)


def create_settings(
    timeout_s: float = 30,
    ssh_identity_file: str | None = None,
    ssh_str: str | None = None,
    placement_group_timeout_s: float = 100,
    nics: Iterable[str] | None = None,
) -> MiniSettings:
    """Makes the settings of a RayExecutor.

    Args:
        timeout_s: Seconds in which the workers must have started, once there is a place for them.
        ssh_identity_file: A file for `ssh_str`. Ray starts the workers, so nothing reads it.
        ssh_str: The text of a private key, written to `ssh_identity_file` with mode 0600 if that does not exist.
        placement_group_timeout_s: Seconds in which the cluster must have a place for the workers.
        nics: The network interfaces that all nodes use; None lets each connection go by its route.

    Raises:
        ValueError: A time that is not a number above 0, `nics` that is one text, `ssh_str` without a file.
    """
    settings = MiniSettings(
        ssh_identity_file=ssh_identity_file,
        timeout_s=timeout_s,
        placement_group_timeout_s=placement_group_timeout_s,
        nics=nics,
    )
    if ssh_str:
        _write_key(ssh_identity_file, ssh_str)
    return settings


def _write_key(path: str | None, text: str) -> None:
    if path is None:
        raise ValueError("ssh_str without ssh_identity_file: expected the file that it is to be written to")
    if Path(path).exists():
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
