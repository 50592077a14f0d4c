"""Bad ways between living ranks: what is short or slow costs nobody, what is cut or garbled is told with the peer's name, and
training goes on without a loss, in static and in elastic jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launcher_job import RunningJob, eventually
from oracle import OracleJob
from peer_proxy import Fault, PeerProxy, Way

RANKS = 3
JOBS = {"static": ("-np", "3"), "elastic": ("-np", "3", "--min-np", "3")}
TCP = {"HOROVOD_SHM": "0"}  # data on one host, too


def way(kind: str, direction: str = "there") -> Callable[[Way], bool]:
    return lambda one: (one.kind, one.direction) == (kind, direction)


class Bad:
    """A job whose ranks reach each other by a proxy."""

    def __init__(self, horovodrun: str, folder: Path, flags: tuple[str, ...]) -> None:
        self.flags = flags
        self.proxy = PeerProxy(folder)
        self.job = OracleJob(horovodrun, folder, flags, wrapper=self.proxy.wrapper, env=TCP)

    def trains(self) -> None:
        """Some steps; one takes about 60 chunks."""
        before = self.proxy.chunks
        eventually(lambda: self.proxy.chunks > before + 300, f"ranks talk\n{self.job}")

    def costs_nobody(self, fault: Fault) -> None:
        """The same round goes on, behind the fault."""
        begun = len(self.job.said("begin"))
        self.proxy.strike(fault)
        eventually(lambda: bool(fault.struck) and fault.is_over(), f"{fault.kind} strikes\n{self.job}")
        self.trains()
        assert self.job.process.poll() is None, self.job
        assert len(self.job.said("begin")) == begun, (fault, self.job)

    def ends_the_round(self, *faults: Fault) -> None:
        """Every rank fails, and who says so names a peer at an end of the connection; the same processes begin anew."""
        self.trains()  # a static job gives up when it has failed four times without a commit
        before = set(self.job.members().values())
        said, since = len(self.job.out), time.time()
        self.proxy.strike(*faults)
        assert set(self.job.wait_for_round(RANKS, since).values()) == before, self.job
        assert all(len(fault.struck) == 1 for fault in faults), (faults, self.job)
        errors = re.findall(r"failed pid=\d+: (.*)", self.job.out[said:])
        assert errors, self.job
        ends = f"[{faults[0].struck[0].connector}{faults[0].struck[0].acceptor}]"
        for error in errors:
            assert not re.search(r"rank \d+ is lost: (?!host )", error), error  # all live: who reports is not lost
            assert re.search(f"lost rank {ends} on host |rank {ends} is lost: host ", error), (faults, self.job)


@pytest.fixture
def start(horovodrun_path: str, tmp_path: Path) -> Iterator[Callable[..., Bad]]:
    started: list[Bad] = []

    def start_bad(*flags: str) -> Bad:
        started.append(Bad(horovodrun_path, tmp_path, flags))
        started[-1].job.wait_for_round(RANKS)
        assert {one.kind for one in started[-1].proxy.ways} == {"control", "data"}
        return started[-1]

    yield start_bad
    for one in started:
        one.proxy.close()
        RunningJob.kill_everything(one.job)


def finish(bad: Bad) -> None:
    bad.job.stop()
    assert bad.job.wait() == 0, bad.job
    bad.job.check(is_static="--min-np" not in bad.flags)


def test_what_is_short_or_slow_costs_nobody(start: Callable[..., Bad]) -> None:
    bad = start(*JOBS["static"])
    bad.costs_nobody(Fault("hold", 2.0))
    bad.costs_nobody(Fault("hold", 2.0, lambda one: one.acceptor == 0 and one.direction == "back"))  # one way alone
    bad.costs_nobody(Fault("slow", 3.0))
    finish(bad)


@pytest.mark.parametrize("job", list(JOBS))
def test_what_is_cut_or_garbled_is_told_with_the_peers_name(start: Callable[..., Bad], job: str) -> None:
    bad = start(*JOBS[job])
    for kind in ("reset", "truncate", "flip"):
        for matches in (way("control"), way("control", "back"), way("data"), way("data", "back")):
            bad.ends_the_round(Fault(kind, matches=matches))
    bad.ends_the_round(Fault("flip", matches=way("control"), at=-1))
    finish(bad)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["control", "data"])
def test_silence_for_good_ends_with_the_stall(start: Callable[..., Bad], kind: str) -> None:
    """The proxy's kernel answers for who is behind it, so nothing else finds it."""
    bad = start(*JOBS["elastic"], "--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "3")
    before, since = set(bad.job.members().values()), time.time()
    bad.proxy.strike(Fault("hold", 600.0, way(kind)))
    eventually(lambda: bad.job.out.count(">:failed ") >= RANKS, f"all fail\n{bad.job}")
    bad.proxy.strike()
    assert set(bad.job.wait_for_round(RANKS, since).values()) == before, bad.job
    finish(bad)


# Of magic, version, kind, from, to, epoch, nonce, host, MAC and finish; of answer, nonce, MAC and welcome. The welcome's end
# is common to both: where it is garbled one side believes in the connection, and ranks of a static job fail in init().
HANDSHAKE = {"there": (0, 8, 10, 12, 16, 20, 30, 70, 130, 160), "back": (0, 5, 40, 65)}


def garble_handshakes(start: Callable[..., Bad], places: dict[str, dict[str, tuple[int, ...]]]) -> None:
    bad = start(*JOBS["elastic"])
    for kind, directions in places.items():
        for direction, bytes_of_stream in directions.items():
            for at in bytes_of_stream:
                bad.ends_the_round(Fault("reset"), Fault("flip", matches=way(kind, direction), at=at))
    finish(bad)


def test_a_garbled_handshake_is_made_again(start: Callable[..., Bad]) -> None:
    garble_handshakes(start, {"control": {"there": (8, 16, 160), "back": (0, 40, 65)}, "data": {"back": (0,)}})


@pytest.mark.slow
def test_any_garbled_handshake_is_made_again(start: Callable[..., Bad]) -> None:
    garble_handshakes(start, {"control": HANDSHAKE, "data": HANDSHAKE})


def test_with_tls_every_flip_is_told(start: Callable[..., Bad]) -> None:
    bad = start(*JOBS["elastic"], "--tls")
    for matches in (way("control"), way("control", "back"), way("data"), way("data", "back")):
        for at in (None, -1):
            bad.ends_the_round(Fault("flip", matches=matches, at=at))
    finish(bad)
