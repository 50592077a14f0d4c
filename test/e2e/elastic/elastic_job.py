"""An elastic job that runs, its hosts, and what its ranks have said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher_job import RunningJob, eventually

from jobs import DEADLINE_S

WORKER = Path(__file__).resolve().parent / "worker.py"


@dataclass(frozen=True)
class Begin:
    """A process has begun to train in a round."""

    pid: int
    rank: int
    size: int
    local_rank: int
    batch: int
    when: float


class ElasticJob(RunningJob):
    """The worker runs until stop(). Hosts are `localhost`, `127.0.0.1` and so on: each name counts as a host."""

    def __init__(
        self,
        horovodrun: Sequence[str],
        folder: Path,
        flags: Sequence[str],
        command: Sequence[str] = (),
        hosts: str = "",
        wrapper: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.horovodrun = horovodrun[-1]
        self.hosts_path = folder / "hosts"
        self.stop_path = folder / "stop"
        self.set_hosts(hosts)
        worker = (sys.executable, str(WORKER), str(self.stop_path))
        if wrapper:
            worker = ("sh", "-c", wrapper, *worker)  # which it finds as "$0" "$@"
        super().__init__([*horovodrun, *flags, *(command or worker)], folder, env or {}, None, folder)

    def set_hosts(self, hosts: str) -> None:
        """What `cat hosts` prints from now on."""
        fresh = self.hosts_path.with_suffix(".new")
        fresh.write_text(hosts)
        fresh.rename(self.hosts_path)

    def stop(self) -> None:
        """All ranks end well, together."""
        self.stop_path.touch()

    def begins(self) -> list[Begin]:
        pattern = re.compile(
            r"\[\d+\]<stdout>:begin pid=(\d+) rank=(\d+) size=(\d+) local_rank=(\d+) batch=(\d+) when=([\d.]+)"
        )
        found = [pattern.fullmatch(line) for line in self.out.splitlines()]
        return [Begin(*map(int, m.groups()[:5]), float(m[6])) for m in found if m]

    def latest(self) -> dict[int, Begin]:
        """By process, the round that it is in, as far as they have said."""
        return {one.pid: one for one in self.begins()}

    def ranks(self) -> dict[int, int]:
        """Rank -> pid of the processes that live."""
        living = self.processes()
        return {one.rank: pid for pid, one in self.latest().items() if pid in living}

    def wait_for_size(self, size: int, deadline_s: float = DEADLINE_S) -> dict[int, int]:
        """Until a round of so many ranks runs; gives rank -> pid."""

        def is_there() -> bool:
            living = self.processes()
            now = [one for pid, one in self.latest().items() if pid in living]
            ranks = sorted(one.rank for one in now)
            return (ranks == list(range(size)) and all(one.size == size for one in now)) or self.process.poll() is not None

        eventually(is_there, f"a round of {size} runs\n{self}", deadline_s)
        assert self.process.poll() is None, self
        return self.ranks()

    def latest_of(self, size: int) -> list[Begin]:
        """What the processes of a round of so many have said of it, once it runs."""
        ranks = self.wait_for_size(size)
        return [self.latest()[pid] for pid in ranks.values()]

    def status(self) -> dict[str, Any]:
        """What `horovodrun --status` says."""
        ran = subprocess.run(
            [self.horovodrun, "--status", str(self.pid)], capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(ran.stdout)

    def slots(self, state: str) -> list[dict[str, Any]]:
        """Those in this state, as the status has them."""
        return [slot for host in self.status()["hosts"] for slot in host["slots"] if slot["state"] == state]

    def kill(self, rank: int) -> float:
        """Kills the process that is this rank now, and waits until it is gone, so that what counts the living counts it no
        more; gives the time when it was killed."""
        pid = self.ranks()[rank]
        when = time.time()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: pid not in self.processes(), f"process {pid} is gone\n{self}")
        return when

    def wait_for_restart(self, pids: Sequence[int], since: float, deadline_s: float = DEADLINE_S) -> float:
        """Until these processes have begun another round; gives the seconds from `since` to the last of them."""

        def all_again() -> bool:
            latest = self.latest()
            return all(pid in latest and latest[pid].when > since for pid in pids) or self.process.poll() is not None

        eventually(all_again, f"{list(pids)} go on\n{self}", deadline_s)
        assert self.process.poll() is None, self
        return max(self.latest()[pid].when for pid in pids) - since

    def assert_consistent(self) -> None:
        """Each round began at the same place on all its ranks, and none before a commit that all had seen."""
        ends = re.findall(r"\[\d+\]<stdout>:end rank=\d+ batch=(\d+) total=(\d+)", self.out)
        assert ends, self
        assert len(set(ends)) == 1, self
        assert "wrong" not in self.out, self


StartElastic = Callable[..., ElasticJob]
