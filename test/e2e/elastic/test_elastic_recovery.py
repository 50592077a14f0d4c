"""How long it takes from the death of one of four ranks to the first step of the others: the figures of docs/reliability.md.

HVD_RECOVERIES: how often (20) for each of the ways to go on.
"""

from __future__ import annotations

import os
import statistics

import pytest
from elastic_job import StartElastic
from launcher_job import eventually

WAYS = {
    "the other three go on": ("--min-np", "3", "-H", "localhost:3,127.0.0.1:1", "--blacklist-cooldown-range", "1", "1"),
    "the lost one is started anew": ("--min-np", "4", "-H", "localhost:4"),
    "a spare takes its place": ("--min-np", "4", "-H", "localhost:5", "--spares", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_how_long_until_the_first_step_after_a_death(way: str, start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "4", *WAYS[way])
    seconds = []
    for _ in range(int(os.environ.get("HVD_RECOVERIES", "20"))):
        before = job.wait_for_size(4)
        if "--spares" in WAYS[way]:
            eventually(lambda: any(f"up pid={one['pid']}\n" in job.out for one in job.slots("spare")), "a spare waits")
        since = job.kill(3)
        seconds.append(job.wait_for_restart([pid for rank, pid in before.items() if rank != 3], since))
    job.stop()
    assert job.wait() == 0, job
    seconds.sort()
    print(
        f"{way}: {len(seconds)} deaths, median {statistics.median(seconds):.3f} s, longest {seconds[-1]:.3f} s; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    assert seconds[-1] < 10, "on any machine"
