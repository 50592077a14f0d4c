"""A failure at each place of launcher, agent and hosts that call in (docs/design/failpoints.md): the job succeeds, or ends
with a reason that no job without a fault gives, and no process is left."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher_job import RunningJob, eventually

from jobs import program

ROOT = Path(__file__).resolve().parents[3]
HANG_S = 180.0  # bounds hangs alone
AT_ONCE = 3  # jobs, which wait more than they work

# Rank 1 dies once before it meets rank 0. What ranks use is installed and has no failpoints.
ELASTIC_RANK = """
unset HOROVOD_FAILPOINTS
if [ "$HOROVOD_RANK" = 1 ] && mkdir "$1"; then exit 5; fi 2>/dev/null
exec "$0" -c 'from horovod._common.native import core; core.init(); print("round of", core.size())'
"""
# To hosts that are this one; the fault is for the first, and what it has started.
BELOW_SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift || exit 255; done
[ -n "$ON_HOST" ] && unset HOROVOD_FAILPOINTS || HOROVOD_FAILPOINTS="$FAULT_BELOW"
export HOROVOD_FAILPOINTS ON_HOST="$2"
exec sh -c "$3"
"""
STATIC_RANK = 'read line; echo "$HOROVOD_RANK got $line"; echo "$HOROVOD_RANK complains" >&2'


@dataclass(frozen=True)
class Ended:
    """A program that was started for a job, and has ended."""

    pid: int
    code: int
    out: list[str]
    err: list[str]


class Setting:
    """A way to run a job; `places` are those that are tried in it."""

    def __init__(self, name: str, places: str) -> None:
        self.name = name
        self.places = places.split()


SETTINGS = (
    Setting(
        "static",
        """child.spawn pipe.open pipe.read pipe.write input.read frame.next link.start link.greeted fleet.send
        launch.listen launch.frame driver.done driver.hello driver.output driver.process status.listen files.open files.write
        events.write hosts.found agent.begin agent.guard agent.frame agent.launch agent.probed agent.send agent.ended
        agent.swept agent.sweep slot.start slot.socket""",
    ),
    Setting("late", "driver.timer summary.write"),
    Setting(
        "below",  # in an agent that has started others
        """relay.open relay.pass relay.up relay.gone child.spawn pipe.open pipe.read pipe.write frame.next link.start
        link.greeted fleet.send agent.send agent.swept agent.sweep""",
    ),
    Setting("ssh", "ssh.query child.spawn"),
    Setting(
        "listed",
        "elastic.hosts elastic.prepare launch.add discovery.spawn discovery.guard discovery.ended discovery.listed",
    ),
    Setting("elastic", "elastic.waiting elastic.offer elastic.began elastic.loss slot.secret"),
    Setting("waits", "gather.listen gather.accept gather.asked seal.start seal.received"),
    Setting("calls", "call.connect call.agent seal.start seal.received"),
)


@pytest.fixture(scope="module")
def launcher(horovodrun_path: str) -> str:
    """With failpoints: the one that is tested, or that of the build for tests."""
    for path in (horovodrun_path, str(ROOT / "build" / "dev" / "launcher" / "horovodrun")):
        if Path(path).exists() and b"no failpoint has this name" in Path(path).read_bytes():
            assert_knows_the_table(path)
            return path
    pytest.skip("no launcher with failpoints is there: cmake --build --preset dev --target horovodrun")


def table() -> dict[str, str]:
    """Name -> kind of the launcher's failpoints."""
    text = (ROOT / "runtime" / "base" / "failpoint.h").read_text()
    rows = re.findall(r'\{"([a-z]+\.[a-z]+)", Kind::k(\w+)\}', text)
    found = re.search(r'kFirstOfLauncher = "([a-z.]+)"', text)
    assert found, "which of the table are the launcher's?"
    return dict(rows[[name for name, _ in rows].index(found[1]) :])


def assert_knows_the_table(launcher: str) -> None:
    """A launcher of older sources refuses names of the table, or has them with another kind."""
    never = ";".join(f"{name}={'kill' if kind == 'Place' else 'error'}@1000000000" for name, kind in KINDS.items())
    env = {**os.environ, "HOROVOD_FAILPOINTS": never}
    ran = subprocess.run((launcher, "--version"), env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    if ran.returncode != 0:
        pytest.fail(f"build/dev is older than the sources: cmake --build --preset dev\n{launcher}: {ran.stderr}")


KINDS = table()
FAULTS = [
    (setting.name, f"{place}={action}")
    for setting in SETTINGS
    for place in setting.places
    for action in (("kill",) if KINDS[place] == "Place" else ("kill", "error"))
]


def test_every_place_of_the_launcher_is_tried() -> None:
    assert set(KINDS) == {place for setting in SETTINGS for place in setting.places}
    assert len(KINDS) > 40


class Trial:
    """One job, with a fault or without one, in a folder of its own."""

    def __init__(self, launcher: str, fake_ssh: str, setting: str, folder: Path, fault: str) -> None:
        self.launcher = launcher
        self.fake_ssh = fake_ssh
        self.setting = setting
        self.folder = folder
        self.fault = fault
        self.hits = folder / "hits"
        self.jobs: list[RunningJob] = []
        self.stopped: set[int] = set()  # by us
        folder.mkdir(parents=True)

    def start(self, *arguments: str, armed: bool = True) -> RunningJob:
        env: dict[str, str | None] = {"HOROVOD_FAILPOINTS_HITS": str(self.hits)}
        if armed and self.fault:
            env["HOROVOD_FAILPOINTS"] = self.fault
        typed = self.folder / "typed"
        typed.write_text("a line\n")
        command = ("sh", "-c", f'exec "$0" "$@" < {typed}', self.launcher, *arguments)
        self.jobs.append(RunningJob(command, self.folder, env, None, self.folder))
        return self.jobs[-1]

    def run(self) -> list[Ended]:
        """All that was started has ended, and nothing is left."""
        try:
            getattr(self, f"start_{self.setting}")()
            ended = [Ended(job.pid, job.wait(HANG_S), self.plain(job.out), self.plain(job.err)) for job in self.jobs]
            for job in self.jobs:
                job.wait_all_gone(HANG_S)
            return ended
        finally:
            for job in self.jobs:
                job.kill_everything()

    def plain(self, text: str) -> list[str]:
        """Lines, without what differs from run to run."""
        return sorted(re.sub(r"\d+", "#", text.replace(str(self.folder), "FOLDER")).splitlines())

    def start_static(self) -> None:
        files = ("--output-filename", str(self.folder / "log"), "--events", str(self.folder / "events"))
        self.start("-np", "2", "--stdin", "all", *files, "sh", "-c", STATIC_RANK)

    def start_late(self) -> None:
        self.start("-np", "1", "--timeout", "1", "--log-dir", str(self.folder / "log"), "sleep", "1000")

    def start_below(self) -> None:
        ssh = program(self.folder / "ssh", BELOW_SSH.replace("$FAULT_BELOW", self.fault))
        tree = ("-H", "198.51.100.1,198.51.100.2,198.51.100.3", "--fan-out", "1", "--ssh-program", ssh)
        self.start("-np", "3", *tree, "--stdin", "all", "sh", "-c", f"unset HOROVOD_FAILPOINTS; {STATIC_RANK}", armed=False)

    def start_ssh(self) -> None:
        self.start("-np", "1", "-H", "far-away:1", "--ssh-program", self.fake_ssh, "echo", "ran")

    def start_listed(self) -> None:
        self.start("-np", "2", "--host-discovery-script", "echo localhost:2", "echo", "ran")

    def start_elastic(self) -> None:
        died = str(self.folder / "died")
        self.start("-np", "2", "--min-np", "2", "-H", "localhost:2", "sh", "-c", ELASTIC_RANK, sys.executable, died)

    def start_waits(self) -> None:
        self.gather(is_launcher=True)

    def start_calls(self) -> None:
        self.gather(is_launcher=False)

    def gather(self, is_launcher: bool) -> None:
        """A launcher that waits for a host, and a host that calls it; a second one where the first could not."""
        token = self.folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32) + "\n")
        waits = ("--wait-for-hosts", "1", "--listen", "127.0.0.1", "--token-file", str(token))
        job = self.start(*waits, "-np", "1", "echo", "ran", armed=is_launcher)
        eventually(lambda: " at 127" in job.err or job.process.poll() is not None, f"it waits\n{job}", HANG_S)
        found = re.search(r" at (127\.0\.0\.1:\d+)\n", job.err)
        if not found:
            return
        for name, armed in (("first", not is_launcher), ("second", False)):
            host = self.start("--join", found[1], "--host-name", name, "--token-file", str(token), armed=armed)
            self.wait_for_one_of(job, host)
            is_over = job.process.poll() is not None
            if is_over and host.process.poll() is None and (job.process.returncode != 0 or name == "second"):
                self.stopped.add(host.pid)  # it would call for long; the host of a job that ends well ends with it
                host.signal(signal.SIGTERM)
            if is_over or host.process.poll() == 0:
                return

    def wait_for_one_of(self, *jobs: RunningJob) -> None:
        eventually(lambda: any(job.process.poll() is not None for job in jobs), f"one has ended\n{jobs}", HANG_S)


def problems_of(trial: Trial, ended: Sequence[Ended], usual: Sequence[Ended]) -> list[str]:
    hits = [line.split() for line in trial.hits.read_text().splitlines()] if trial.hits.exists() else []
    name = trial.fault.split("=")[0]
    found = [] if any(hit[0] == name for hit in hits) else [f"{trial.fault}: never hit"]
    killed = {int(pid) for _, pid in hits} if trial.fault.endswith("=kill") else set()
    expected = {one.pid: usual[min(at, len(usual) - 1)] for at, one in enumerate(ended)}
    for one in ended:
        as_usual = expected[one.pid]
        if one.pid in killed | trial.stopped or (one.code == as_usual.code == 0 and one.out == as_usual.out):
            continue
        if not [line for line in one.err if line.strip() and line not in as_usual.err]:
            found.append(
                f"{trial.fault} in {trial.setting}: code {one.code}, and no reason in {one.err}; it printed {one.out}"
            )
    return found


@pytest.mark.parametrize(
    ("hit", "ended", "found"),
    [
        ("files.open 7", Ended(5, 0, ["ran"], ["a notice"]), []),
        ("files.open 7", Ended(5, 0, [], ["a notice"]), ["no reason"]),  # it has lost what was printed
        ("files.open 7", Ended(5, 1, ["ran"], ["a notice"]), ["no reason"]),
        ("files.open 7", Ended(5, 1, ["ran"], ["a notice", "why"]), []),
        ("files.open 5", Ended(5, 137, [], []), []),  # it was killed itself
        ("", Ended(5, 0, ["ran"], ["a notice"]), ["never hit"]),
    ],
)
def test_the_sweep_can_fail(hit: str, ended: Ended, found: list[str], tmp_path: Path) -> None:
    trial = Trial("", "", "static", tmp_path / "job", "files.open=kill")
    trial.hits.write_text(hit)
    seen = problems_of(trial, [ended], [Ended(1, 0, ["ran"], ["a notice"])])
    assert len(seen) == len(found)
    assert all(word in text for word, text in zip(found, seen, strict=True))


@pytest.mark.parametrize("setting", [setting.name for setting in SETTINGS])
def test_whatever_fails_is_said_and_leaves_nothing(setting: str, launcher: str, fake_ssh: str, tmp_path: Path) -> None:
    usual = Trial(launcher, fake_ssh, setting, tmp_path / "usual", "")
    without = usual.run()
    assert [one.code for one in without] == ([124] if setting == "late" else [0] * len(without)), usual.jobs

    def attempt(fault: str) -> list[str]:
        trial = Trial(launcher, fake_ssh, setting, tmp_path / re.sub(r"\W", "_", fault), fault)
        return problems_of(trial, trial.run(), without)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        problems = pool.map(attempt, [fault for name, fault in FAULTS if name == setting])
        assert [text for texts in problems for text in texts] == []
