"""Trains on numbered samples, and keeps the books by which a test can tell whether elastic training has kept its word.

Every sample has to be counted once in each epoch, whatever becomes of ranks; the state has to be the same on all of them
after each step, and after a reset that of the survivor with the most commits. What is wrong is printed: `wrong ...`.

Usage: oracle_worker.py FOLDER SAMPLES. It ends, well, at the end of the epoch in which FOLDER/stop is there. When
FOLDER/break holds "rank moment", in lines, the rank of the first takes it out and kills itself at that moment: in `step` (others are
inside the collective), before the `commit`, in `reset`, in `sync`. When FOLDER/resets holds a
number, all ranks fail so often together; then it is taken away.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from worker_support import broadcast_object, collectives

from horovod._common.session import basics, init, rank, size
from horovod.common.elastic import ObjectState, restart_session, run_fn
from horovod.common.exceptions import HorovodInternalError
from living_threads import living_threads

FOLDER = Path(sys.argv[1])
SAMPLES = int(sys.argv[2])
BATCH = 4  # of one rank


def digest_of(state: Any) -> str:
    return hashlib.sha256(state.counts.tobytes() + repr((state.commits, state.epoch, state.chain)).encode()).hexdigest()[:16]


def say(word: str, state: Any) -> None:
    print(f"{word} pid={os.getpid()} rank={rank()} size={size()} commits={state.commits} digest={digest_of(state)}",
          f"when={time.time():.4f}", flush=True)  # fmt: skip


def check(good: bool, *what: object) -> None:
    if not good:
        print("wrong", os.getpid(), *what, flush=True)


def replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def break_here(moment: str, own_rank: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        first, *others = (FOLDER / "break").read_text().splitlines()
        if first == f"{own_rank} {moment}":
            replace(FOLDER / "break", "".join(line + "\n" for line in others))
            print(f"breaks {moment} when={time.time():.4f}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def resources() -> dict[str, int]:
    """What a session that is over must have given back."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(entry))
    listening = 0
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        inodes = {f"socket:[{line.split()[9]}]" for line in Path(table).read_text().splitlines()[1:] if line.split()[3] == "0A"}
        listening += len(inodes & set(links))
    shared = sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return {
        "descriptors": len(links), "threads": living_threads(), "ports": listening,
        "shared": shared,
    }  # fmt: skip


class OracleState(ObjectState):
    def sync(self) -> None:
        break_here("sync", rank())
        super().sync()


def agree(state: Any) -> None:
    """All ranks hold the same bits."""
    number = np.array([int(digest_of(state)[:15], 16)], np.int64)
    both = np.concatenate([number, -number])
    collectives.allreduce_([both], ["digest"], basics.Max)
    check(both[0] == number[0] and both[1] == -number[0], "ranks differ at commit", state.commits)


def take_samples(state: Any) -> np.ndarray:
    """This rank's share of those that the epoch has not had."""
    left = np.flatnonzero(state.counts <= state.epoch)
    return left[: BATCH * size()][rank() :: size()]


def step(state: Any) -> bool:
    """Whether the end has come, the same on all ranks."""
    mine = np.zeros(SAMPLES, np.int64)
    mine[take_samples(state)] = 1
    flags = np.array([(FOLDER / "stop").exists()], np.int64)
    break_here("step", rank())
    collectives.allreduce_([mine], ["samples"], basics.Sum)
    collectives.allreduce_([flags], ["stop"], basics.Max)
    check(mine.max() == 1, "a sample was taken twice in a step", mine.max())
    state.counts = state.counts + mine
    state.chain = hashlib.sha256(f"{state.chain} {size()}".encode() + mine.tobytes()).hexdigest()
    check(state.counts.max() == state.epoch + 1, "a sample was counted twice in an epoch")
    if state.counts.min() == state.epoch + 1:
        state.epoch += 1
        return bool(flags[0])
    return False


def resets_wanted() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((FOLDER / "resets").read_text())
    return 0


def train(state: Any) -> None:
    agree(state)
    say("begin", state)
    for _ in iter(lambda: step(state), True):
        break_here("commit", rank())
        state.commits += 1
        agree(state)
        state.commit()
        fail_together(state)
        time.sleep(0.002)
    state.commits += 1
    state.commit()


def fail_together(state: Any) -> None:
    wanted = np.array([resets_wanted()], np.int64)
    collectives.allreduce_([wanted], ["resets"], basics.Max)
    if wanted[0] == 0:
        return
    if counted["resets"] in (10, wanted[0]):
        print(f"resources {counted['resets']} {resources()}", flush=True)
    if counted["resets"] == wanted[0]:
        if rank() == 0:
            (FOLDER / "resets").unlink(missing_ok=True)
        return
    counted["resets"] += 1
    raise HorovodInternalError("all fail together")


def train_and_tell(state: Any) -> None:
    try:
        train(state)
    except HorovodInternalError as error:
        print(f"failed pid={os.getpid()}: {error}", flush=True)
        raise


def restart() -> None:
    say("had", the_state)
    break_here("reset", rank())
    restart_session()


counted = {"resets": 0}
init()
if "with-child" in sys.argv:  # which has all our descriptors that are not closed at exec
    subprocess.Popen(["sleep", "1000"], close_fds=False)
the_state: Any = OracleState(
    broadcast_object, rank, commits=0, epoch=0, chain="", counts=np.zeros(SAMPLES, np.int64)
)
run_fn(train_and_tell, restart)(the_state)
check((the_state.counts == the_state.epoch).all(), "a sample was lost")
say("end", the_state)
