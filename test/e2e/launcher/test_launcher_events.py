"""--events: what happens to a job, for programs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from launcher_job import RunningJob, StartJob, eventually


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def begin_of(event: dict[str, Any], job: RunningJob) -> str:
    """Its name, when it begins as every line does."""
    assert list(event)[:3] == ["time", "event", "job"]
    assert event["job"] == job.pid
    assert event["time"].endswith("Z")
    when = datetime.fromisoformat(event["time"].replace("Z", "+00:00"))
    assert abs(datetime.now(timezone.utc) - when) < timedelta(minutes=30)
    return event["event"]


def test_a_static_job_tells_who_ran_where_and_how_each_ended(start_job: StartJob, tmp_path: Path) -> None:
    # Rank 2 is killed when the others have ended: so the order is known, and nobody ends because of another.
    script = (
        "case $HOROVOD_RANK in 2) until [ -e 0 ] && [ -e 1 ]; do sleep 0.01; done; kill -KILL $$;;"
        " *) touch $HOROVOD_RANK; echo said;; esac"
    )
    flags = ("-np", "3", "-H", "localhost:2,127.0.0.1:1", "--events", "events", "-x", "TOKEN=of the environment")
    job = start_job(*flags, "sh", "-c", script, "not $A_VARIABLE", env={"A_VARIABLE": "hidden value"})
    assert job.wait() == 137, job
    text = (tmp_path / "events").read_text()
    events = events_of(tmp_path / "events")
    names = [begin_of(event, job) for event in events]
    assert names[0] == "job_started"
    assert names[-1] == "job_ended"
    assert sorted(names[1:-1]) == ["host_ready"] * 2 + ["rank_ended"] * 3 + ["rank_started"] * 3
    started = events[0]
    assert started["format"] == 1
    assert started["command"] == ["sh", "-c", script, "not $A_VARIABLE"]
    assert (started["num_proc"], started["elastic"]) == (3, False)
    assert started["hosts"] == [{"name": "localhost", "ranks": 2}, {"name": "127.0.0.1", "ranks": 1}]
    for word in ("hidden value", "of the environment", "HOROVOD_SECRET"):
        assert word not in text
    places = {
        e["rank"]: (e["local_rank"], e["host"], e["slot"], e["incarnation"]) for e in of_kind(events, "rank_started")
    }
    assert places == {0: (0, "localhost", 0, 1), 1: (1, "localhost", 1, 1), 2: (0, "127.0.0.1", 2, 1)}
    ends = {e["rank"]: e for e in of_kind(events, "rank_ended")}
    assert [(ends[rank]["exit_code"], ends[rank]["signal"]) for rank in range(3)] == [(0, None), (0, None), (None, 9)]
    assert {e["rank"]: e["pid"] for e in of_kind(events, "rank_started")} == {rank: ends[rank]["pid"] for rank in ends}
    over = events[-1]
    assert (over["exit_code"], over["restarts"]) == (137, 0)
    assert over["seconds"] >= max(e["seconds"] for e in ends.values()) > 0
    failure = over["first_failure"]
    assert (failure["rank"], failure["host"], failure["exit_code"]) == (2, "127.0.0.1", 137)
    assert failure["what"] == "was killed by signal 9 (SIGKILL)"
    assert "events" not in job.err


def test_events_are_there_as_they_happen_and_jobs_add_to_what_is_there(start_job: StartJob, tmp_path: Path) -> None:
    path = tmp_path / "events"
    job = start_job("-np", "1", "--events", str(path), "sh", "-c", "until [ -e go ]; do sleep 0.01; done")
    eventually(lambda: path.exists() and "rank_started" in path.read_text(), f"the rank is told\n{job}")
    assert [e["event"] for e in events_of(path)] == ["job_started", "host_ready", "rank_started"]
    (tmp_path / "go").touch()
    assert job.wait() == 0, job
    second = start_job("-np", "1", "--events", str(path), "no-such-command")
    assert second.wait() == 127, second
    events = [event for event in events_of(path) if event["job"] == second.pid]
    assert [e["event"] for e in events] == ["job_started", "host_ready", "rank_not_started", "job_ended"]
    assert events[2]["exit_code"] == 127
    assert "command not found: no-such-command" in events[2]["why"]
    assert events[3]["first_failure"]["rank"] is None
    assert len(events_of(path)) == 5 + 4


@pytest.mark.parametrize("name", ["missing/events", "folder", "link", "-", "/dev/stdout"])
def test_a_file_that_cannot_be_opened_ends_the_job_before_anything_starts(
    name: str, start_job: StartJob, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    job = start_job("-np", "1", "--events", name, "touch", "ran")
    assert job.wait() == 1, job
    assert job.err.startswith("horovodrun: --events: "), job
    assert name in job.err or "missing" in job.err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_the_summary_and_events_have_a_file_each(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("-np", "1", "--log-dir", "log", "--events", "log/summary.json", "touch", "ran")
    assert job.wait() == 1, job
    assert "--events: log/summary.json is where --log-dir log has the summary" in job.err
    assert not (tmp_path / "ran").exists()


def test_a_file_that_takes_no_more_is_said_once_and_the_job_goes_on(
    start_job: StartJob, horovodrun_path: str, tmp_path: Path
) -> None:
    """As with a full disk: a limit of 512 or 1024 bytes on files."""
    shell = f'trap "" XFSZ; ulimit -f 1; exec {horovodrun_path} -np 3 --events events echo ran'
    limited = tmp_path / "limited.sh"
    limited.write_text(shell)
    job = start_job("-np", "1", "--no-prefix", "sh", str(limited))
    assert job.wait() == 0, job
    assert job.out.count("<stdout>:ran\n") == 3, job
    assert job.err.count("cannot write to events: write: File too large; the job goes on") == 1, job
    assert "events are missing in events" in job.err, job
    whole = (tmp_path / "events").read_text().splitlines()[:-1]
    assert json.loads(whole[0])["event"] == "job_started"
