"""Exceptions of the public API."""

from __future__ import annotations

from typing import Any

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
    """The set of hosts changed; the state of the workers is intact.

    `skip_sync`: hosts were only removed, so that no state needs to be synchronised.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The text of a HorovodVersionMismatchError: `name` was `version` at build time and is `installed_version` now."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version} at build time.\n"
        f"Reinstall horovod-gloo to match the installed {name}."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework module could not be loaded because the framework changed since the build.

    Attributes, all strings: `name` of the framework, the `version` of the build, the `installed_version`.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.version, self.installed_version)  # args has the message alone
