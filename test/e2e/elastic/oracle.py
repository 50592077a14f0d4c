"""Jobs of oracle_worker.py, faults for them, and what must be true of what they have printed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos_proxy import KINDS, ChaosProxy, Fault
from elastic_job import ElasticJob
from launcher_job import eventually
from peer_proxy import KINDS as PEER_KINDS
from peer_proxy import Fault as PeerFault
from peer_proxy import PeerProxy

from jobs import SUPPORT

WORKER = Path(__file__).resolve().parent / "oracle_worker.py"


@dataclass(frozen=True)
class Said:
    """A line of a worker: `begin` of a round, `had` when a round is over, `end`."""

    word: str
    pid: int
    rank: int
    size: int
    commits: int
    digest: str
    when: float


class OracleJob(ElasticJob):
    """Names of hosts are names of this machine; each counts as a host."""

    def __init__(
        self,
        horovodrun: str,
        folder: Path,
        flags: Sequence[str],
        hosts: str = "",
        more: str = "",
        wrapper: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        command: tuple[str, ...] = (sys.executable, str(WORKER), str(folder), "97", *([more] if more else []))
        if wrapper:
            command = ("sh", "-c", wrapper, *command)
        super().__init__((horovodrun,), folder, flags, command, hosts, env={**SUPPORT, **(env or {})})

    def said(self, *words: str) -> list[Said]:
        pattern = re.compile(
            r"\[\d+\]<stdout>:(begin|had|end) pid=(\d+) rank=(\d+) size=(\d+) commits=(\d+) digest=(\w+) when=([\d.]+)"
        )
        found = [m for line in self.out.splitlines() if (m := pattern.fullmatch(line)) and m[1] in words]
        return [Said(m[1], int(m[2]), int(m[3]), int(m[4]), int(m[5]), m[6], float(m[7])) for m in found]

    def latest_begins(self) -> dict[int, Said]:
        return {one.pid: one for one in self.said("begin")}

    def members(self) -> dict[int, int]:
        """Rank -> pid, of the processes that live and have begun."""
        living = self.processes()
        return {one.rank: pid for pid, one in self.latest_begins().items() if pid in living}

    def wait_for_round(self, size: int, since: float = 0.0) -> dict[int, int]:
        """Until a round of so many ranks has begun after `since`; gives rank -> pid."""

        def is_there() -> bool:
            living = self.processes()
            now = [one for pid, one in self.latest_begins().items() if pid in living and one.when > since]
            ranks = sorted(one.rank for one in now if one.size == size)
            return ranks == list(range(size)) or self.process.poll() is not None

        eventually(is_there, f"a round of {size} runs\n{self}")
        assert self.process.poll() is None, self
        return self.members()

    def break_at(self, moments: Sequence[str]) -> float:
        """Ranks die one after the other, each ("0 sync") at its moment; gives the time of the last."""
        wish = self.folder / "break"
        before = self.out.count(">:breaks ")
        wish.with_suffix(".wish").write_text("\n".join(moments))
        wish.with_suffix(".wish").rename(wish)
        eventually(lambda: self.out.count(">:breaks ") == before + len(moments), f"{moments}\n{self}")
        return float(re.findall(r"breaks \w+ when=([\d.]+)", self.out)[-1])

    def check(self, is_static: bool = False) -> None:
        """The oracle: no rank saw anything wrong, nobody went back behind a commit of its own (in a static job rank 0 stays
        rank 0, and another may have been one ahead), and all have ended with the same state."""
        assert "wrong" not in self.out, self
        had: dict[int, int] = {}
        for one in self.said("begin", "had") if not is_static else []:
            if one.word == "had":
                had[one.pid] = one.commits
            elif one.pid in had:
                assert one.commits >= had[one.pid], (one, had[one.pid], self)
        ends = self.said("end")
        assert ends, self
        assert len({(one.commits, one.digest) for one in ends}) == 1, self


@dataclass
class Chaos:
    """Faults at random times, from a seed. Whatever it does, two processes on localhost that have the job's state live,
    and the other host alone is less than --min-np: so nothing that it does may end the job."""

    job: OracleJob
    proxy: ChaosProxy
    peers: PeerProxy
    seed: int
    mean_s: float
    faults: int = 0

    HOSTS = "localhost:4\n"
    OTHER = "127.0.0.1:1\n"
    FLAGS = ("-np", "5", "--min-np", "2", "--max-np", "5", "--grace", "2", "--blacklist-cooldown-range", "1", "2")

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.has_other = True
        self.counts: dict[str, int] = {}
        self.nets: list[Fault | PeerFault] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (pause := self.random.expovariate(1 / self.mean_s)) < end - time.monotonic():
            time.sleep(pause)
            assert self.job.process.poll() is None, self.job
            self.one_fault()

    def one_fault(self) -> None:
        kinds = ("kill", "two", "stop", "terminate", "hosts", "net", "peers")
        kind = self.random.choices(kinds, (40, 10, 15, 10, 15, 5, 5))[0]
        if kind == "peers":  # control connections: a flip in a tensor is not told
            seconds = self.random.uniform(0.3, 1.5)
            fault = PeerFault(self.random.choice(PEER_KINDS), seconds, lambda way: way.kind == "control")
            self.peers.strike(fault)
            self.nets.append(fault)
            return
        if kind == "net":
            seconds, from_next = self.random.uniform(0.3, 1.5), self.random.random() < 0.5
            self.nets.append(self.proxy.fault(self.random.choice(KINDS), seconds, from_next))
            return
        if kind == "hosts":
            self.has_other = not self.has_other
            self.job.set_hosts(self.HOSTS + self.OTHER * self.has_other)
        else:
            at_home, away = [], []
            for pid in sorted(self.job.members().values()):
                with contextlib.suppress(OSError):  # it has just ended
                    host = (Path("/proc") / str(pid) / "environ").read_bytes()
                    (away if b"HOROVOD_HOSTNAME=127.0.0.1" in host else at_home).append(pid)
            count = 2 if kind == "two" else 1
            # Who is told to go does not come back to localhost, whose place in the list it keeps.
            able = away if kind == "terminate" else at_home + away
            if len(able) < count or (kind != "terminate" and len(at_home) < count + 2):
                return
            struck = [self.hit(pid, kind) for pid in self.random.sample(able, count)]
            if not any(struck):
                return
        self.count(kind)

    def count(self, kind: str) -> None:
        self.faults += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def count_nets(self) -> None:
        """When the job is over: those that struck something."""
        for fault in self.nets:
            if fault.struck:
                self.count(f"peers {fault.kind}" if isinstance(fault, PeerFault) else fault.kind)

    def hit(self, pid: int, kind: str) -> bool:
        """False if the process has just ended by itself."""
        try:
            if kind == "stop":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.uniform(0.1, 0.5))
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGTERM if kind == "terminate" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True
