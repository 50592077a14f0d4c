"""--events of elastic jobs: hosts and ranks come and go, and rounds begin."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from elastic_job import StartElastic
from launcher_job import eventually


def events_of(path: Path, kind: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for event in events if event["event"] == kind]


def test_rounds_hosts_and_processes_are_told(start_elastic: StartElastic, tmp_path: Path) -> None:
    path = tmp_path / "events"
    flags = (
        "-np",
        "2",
        "--min-np",
        "1",
        "--max-np",
        "3",
        "--host-discovery-script",
        "cat hosts",
        "--events",
        str(path),
    )
    job = start_elastic(*flags, "--log-dir", str(tmp_path), hosts="localhost:1\n127.0.0.1:1\n")
    first = job.wait_for_size(2)
    job.set_hosts("localhost:1\n127.0.0.1:1\n127.0.0.2:1\n")
    second = job.wait_for_size(3)
    # The agent of a host that is not rank 0's: the host is lost, and its rank with it.
    rounds = events_of(path, "round_began")
    lost = rounds[1]["ranks"][2]
    agent = [pid for pid in job.named("hvd-agent") if is_ancestor(pid, lost["pid"])]
    assert len(agent) == 1, job
    os.kill(agent[0], signal.SIGKILL)
    eventually(lambda: len(events_of(path, "round_began")) == 3, f"the third round\n{job}")
    job.wait_for_size(2)
    job.stop()
    assert job.wait() == 0, job

    started = events_of(path, "job_started")[0]
    assert (started["elastic"], started["min_num_proc"], started["max_num_proc"], started["hosts"]) == (True, 1, 3, [])
    assert [e["host"] for e in events_of(path, "host_added")] == ["localhost", "127.0.0.1", "127.0.0.2"]
    assert {e["host"] for e in events_of(path, "host_ready")} == {"localhost", "127.0.0.1", "127.0.0.2"}
    changed = events_of(path, "hosts_changed")
    assert (changed[0]["slots_added"], changed[0]["slots_removed"]) == (True, False)
    rounds = events_of(path, "round_began")
    assert [(e["round"], e["size"], len(e["ranks"])) for e in rounds] == [(1, 2, 2), (2, 3, 3), (3, 2, 2)]
    assert {e["rank"]: e["pid"] for e in rounds[0]["ranks"]} == first
    assert {e["rank"]: e["pid"] for e in rounds[1]["ranks"]} == second
    assert "slots were added" in rounds[1]["why"]
    assert [e["host"] for e in events_of(path, "host_lost")] == [lost["host"]]
    ends = {e["pid"]: e for e in events_of(path, "rank_ended")}
    assert len(ends) == len(events_of(path, "rank_started")) == 3
    assert (ends[lost["pid"]]["exit_code"], ends[lost["pid"]]["signal"]) == (None, None)
    assert sorted(e["exit_code"] for e in ends.values() if e["pid"] != lost["pid"]) == [0, 0]
    over = events_of(path, "job_ended")[0]
    assert (over["exit_code"], over["restarts"], over["first_failure"]) == (0, 2, None)

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["restarts"] == 2
    figures = {process["pid"]: process["collectives"] for process in summary["processes"]}
    assert figures.pop(lost["pid"]) is None
    assert len(figures) == 2
    assert all(number > 0 for number in figures.values())


def is_ancestor(pid: int, of: int) -> bool:
    while of > 1:
        if of == pid:
            return True
        of = int(Path(f"/proc/{of}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False
