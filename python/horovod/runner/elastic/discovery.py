"""Which hosts a job may use: what says so, for horovod.ray and for programs of one's own."""

from __future__ import annotations

import abc
import contextlib
import enum
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping

from horovod import _missing

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript", "HostUpdateResult"]

__getattr__ = _missing.getattr_for(__name__, "DiscoveredHosts HostManager")

_SCRIPT_LIMIT_S = 30  # of one run, as horovodrun has it
_LINE = re.compile(r"([^\s:]+)(?::(\d+))?")


class HostUpdateResult(enum.IntFlag):
    """How the hosts differ from what they were."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class HostDiscovery(abc.ABC):
    """Says which hosts there are; to be derived from."""

    @abc.abstractmethod
    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """A dictionary: name of a host -> how many ranks it takes, as it is now. May be empty."""


class HostDiscoveryScript(HostDiscovery):
    """The hosts that a script prints, one in a line: `host` or `host:slots`. Empty lines are left out.

    Args:
        discovery_script: A command for the shell.
        default_slots: The slots of a host that is printed without a number.
    """

    def __init__(self, discovery_script: str, default_slots: int) -> None:
        self._discovery_script = discovery_script
        self._default_slots = default_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Runs the script: name of a host -> slots, in the order in which they are printed. A host that is printed
        twice has the slots of both lines.

        RuntimeError: it fails, or still runs after 30 seconds; it is killed then. ValueError: a line is something else.
        """
        hosts: dict[str, int] = {}
        for number, line in enumerate(self._run().splitlines(), 1):
            text = line.strip()
            if not text:
                continue
            match = _LINE.fullmatch(text)
            if match is None:
                raise ValueError(
                    f"{self._discovery_script}: its line {number} {text!r}, expected host or host:slots, such as "
                    "worker-0:2"
                )
            hosts[match[1]] = hosts.get(match[1], 0) + int(match[2] or self._default_slots)
        return hosts

    def _run(self) -> str:
        # Into a file: a process that the script leaves behind may hold a pipe for as long as it likes.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
            script = subprocess.Popen(
                self._discovery_script, shell=True, stdin=subprocess.DEVNULL, stdout=printed, start_new_session=True
            )
            try:
                code = script.wait(_SCRIPT_LIMIT_S)
            except BaseException as error:  # Ctrl-C too: the script has a session of its own, and would not hear of it
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(script.pid, signal.SIGKILL)
                script.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise RuntimeError(
                    f"{self._discovery_script}: killed, as it still ran after {_SCRIPT_LIMIT_S} s"
                ) from None
            if code != 0:
                raise RuntimeError(f"{self._discovery_script}: failed with exit code {code}")
            printed.seek(0)
            return printed.read()


class FixedHosts(HostDiscovery):
    """The hosts that it was told last.

    Args:
        available_hosts: A dictionary: name of a host -> its slots.
    """

    def __init__(self, available_hosts: Mapping[str, int]) -> None:
        self._available_hosts = dict(available_hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """A dictionary: name of a host -> its slots, as last set. Changing it changes nothing here."""
        return dict(self._available_hosts)

    def set(self, available_hosts: Mapping[str, int]) -> None:
        """From now on the hosts are those of `available_hosts`: name of a host -> its slots. Any thread may call."""
        self._available_hosts = dict(available_hosts)
