"""Running commands and jobs to their end, and waiting for what they do, with a deadline."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 240
SUPPORT = {"PYTHONPATH": str(ROOT / "test" / "support")}  # for jobs whose scripts import from there


def without(*packages: str) -> str:
    """A PYTHONPATH for processes that do as if "jax" or "sklearn" were not installed, and find test/support.

    TensorFlow and Keras import both where they are, for functions that no test calls: a third of the processor time that
    `import tensorflow` takes.
    """
    support = SUPPORT["PYTHONPATH"]
    return os.pathsep.join([*(f"{support}/without_{name}" for name in packages), support])


def program(path: Path, text: str) -> str:
    """Writes a script that can be executed; `text` begins with `#!`."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@dataclass(frozen=True)
class Job:
    """What a finished job left behind."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run_to_end(
    command: Sequence[str], env: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S, cwd: Path = ROOT
) -> Job:
    """Runs a command to its end; one that misses the deadline is killed with all it started, and fails the test."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{' '.join(command)} did not end within {deadline_s} s\n{Job(-1, out, err).text}")
    return Job(process.returncode, out, err)


def free_ports(count: int) -> list[int]:
    """Ports of loopback for servers that have to be told them. No connection that others make takes one meanwhile."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])  # that those get
    ports: list[int] = []
    with contextlib.ExitStack() as taken:
        while len(ports) < count:
            with contextlib.suppress(OSError):
                port = random.randrange(max(1024, lowest - 8000), lowest)
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    return ports


def free_port() -> int:
    return free_ports(1)[0]


def eventually(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Waits until the condition holds; fails the test when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


def assert_soon(measure: Callable[[], float], limit_s: float) -> None:
    """That `measure`, which returns seconds, stays below `limit_s` in one of three tries.

    On a busy machine a process may be late by chance; one that waits for something it should not is late each time.
    """
    seconds: list[float] = []
    while len(seconds) < 3:
        seconds.append(measure())
        if seconds[-1] < limit_s:
            return
    pytest.fail(f"it took {seconds} seconds, expected less than {limit_s}")


def examples(heading: str) -> list[str]:
    """The blocks of code under a heading of docs/launching.md."""
    text = (ROOT / "docs/launching.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)


def check_ranks(job: Job, ranks: int) -> None:
    """A job of pytest: every rank ran the same tests, and all passed."""
    assert job.code == 0, job.text
    summaries = re.findall(r"\[(\d+)\]<stdout>:.*?(\d+) passed(?:, (\d+) skipped)?", job.out)
    assert sorted(int(rank) for rank, _, _ in summaries) == list(range(ranks)), job.text
    assert len({passed for _, passed, _ in summaries}) == 1, summaries
    assert int(summaries[0][1]) > 0
    assert all(skipped == "" for _, _, skipped in summaries), "what does not fit is deselected, with a reason"


def run_rank_tests(
    horovodrun: Callable[..., Job],
    starter: str,
    ranks: int,
    env: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    deadline_s: float = 600.0,
) -> None:
    """Runs the tests of the folder ranks/ next to the file `starter` on all ranks of a job. See rank_world.py."""
    pytest_of_a_rank = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(Path(starter).parent / "ranks"))
    env = {"HVD_RANK_TESTS": "1", **(env or {})}
    check_ranks(horovodrun(ranks, *pytest_of_a_rank, env=env, flags=flags, deadline_s=deadline_s), ranks)


def assert_learned(job: Job, last_line: str) -> None:
    """An example for the digits succeeded, and ended with this line, in which _ stands for an accuracy."""
    assert job.code == 0, job.text
    pattern = re.escape(last_line).replace("_", r"(0\.\d+|1\.0+)")
    last = re.search(f"{pattern}$", job.out.strip().splitlines()[-1])
    assert last, job.text
    assert float(last[1]) >= 0.95


def heard_of_end(job: Job) -> tuple[float, str]:
    """After how many seconds rank 0 heard that a rank ended (ends.py), and what."""
    ended = re.search(r"<stdout>:ends ([\d.]+)", job.out)
    heard = re.search(r"\[0\]<stdout>:heard ([\d.]+) (.*)", job.out)
    assert ended, job.text
    assert heard, job.text
    return float(heard[1]) - float(ended[1]), heard[2]


def assert_heard_soon(run: Callable[[], Job], error: str) -> None:
    """That rank 0 of the job that `run` runs gets this error, which names rank 1 unless it is a Ctrl-C, soon after."""

    def seconds() -> float:
        job = run()
        after, what = heard_of_end(job)
        assert what.startswith(error), what
        if error == "KeyboardInterrupt":
            # 1 where the launcher had to end it: leaving may take longer than the second that it gets.
            assert job.code in (130, 1), job.text
        else:
            assert job.code != 0, job.text
            assert "rank 1" in what
        return after

    assert_soon(seconds, 2.0)


# The beginning of a script whose ranks have met.
INIT_TORCH = "import os, sys, time, torch, horovod.torch as hvd\nhvd.init()\nhvd.allreduce(torch.ones(3))\n"


def torch_script(folder: Path, body: str) -> str:
    """The path of a script that does `body` once its ranks have met."""
    script = folder / "script.py"
    script.write_text(INIT_TORCH + textwrap.dedent(body) + "\n")
    return str(script)
