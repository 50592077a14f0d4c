"""Exceptions of the public API."""

from __future__ import annotations

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks disagreed, a rank was lost, or the session is not running.

    Elastic training may recover from it.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; the worker state is intact.

    `skip_sync` is True when hosts were only removed, so that no state needs to be sent around.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Says in words that the installed framework is not the one that Horovod was built with."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version} at build time.\n"
        f"Reinstall horovod-gloo to match the installed {name}."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework extension could not be loaded because the framework changed since the build."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
