"""What a core file of a job's processes would hold: neither the job's secret nor the keys that are made of it."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_job import RunningJob, StartJob

# Through all that uses a key: the store, control and data connections, a seal.
RANK = """
import ctypes, signal
from horovod._common.native import core
core.init()
numbers = (ctypes.c_float * 100000)(*([1.0] * 100000))
place = ctypes.addressof(numbers)
tensor = (place, place, [100000], core.DTYPE_FLOAT32, -1)
core.enqueue((core.OP_ALLREDUCE, "allreduce.x", -1, ()), tensor, (core.REDUCE_SUM, 1.0, 1.0, 0), numbers).wait()
assert numbers[99999] == core.size()
core.seal_payload("x", b"payload")
print("ready, epoch", core.epoch(), flush=True)
signal.pause()
"""


def variable(pid: int, name: str) -> str:
    for entry in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0"):
        if entry.startswith(name.encode() + b"="):
            return entry.decode().split("=", 1)[1]
    pytest.fail(f"process {pid} has no {name}")


def secret_of(agent_socket: str) -> bytes:
    """As a rank asks for it (docs/design/job-bootstrap.md)."""
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect("\0" + agent_socket)
        connection.sendall(b"HVDAGNT3\x01" + bytes(4))
        while chunk := connection.recv(100):
            answer += chunk
    return answer[-32:]


def keys_of(secret: bytes, epoch: str) -> dict[str, bytes]:
    """The secret, what HKDF-SHA256 makes of it on its way, and the keys (docs/design/job-bootstrap.md)."""
    extracted = hmac.digest(bytes(32), secret, hashlib.sha256)
    found = {"secret": secret, "secret in hex": secret.hex().encode(), "extracted": extracted}
    for purpose in ("kv|0", "host|0", f"ctl|{epoch}", f"data|{epoch}", f"py|{epoch}"):
        found[purpose] = hmac.digest(extracted, purpose.encode() + b"\x01", hashlib.sha256)
    return found


def mappings(pid: int) -> Iterator[tuple[int, int, str, bool]]:
    """Begin, end, name of each mapping that has pages, and whether core files have it."""
    begin, end, name, pages = 0, 0, "", 0
    for line in (Path("/proc") / str(pid) / "smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            begin, end = (int(number, 16) for number in words[0].split("-"))
            name = words[5] if len(words) > 5 else "anonymous"
        elif words[0] == "Rss:":
            pages = int(words[1])
        elif words[0] == "VmFlags:" and pages > 0 and name not in ("[vvar]", "[vsyscall]"):
            yield begin, end, name, "dd" not in words


def found_in(pid: int, needles: dict[str, bytes]) -> tuple[set[str], set[str]]:
    """Which of them are in the memory that a core file of the process has, with the place; and which in what it leaves out."""
    dumped, left_out = set(), set()
    with (Path("/proc") / str(pid) / "mem").open("rb", buffering=0) as memory:
        for begin, end, name, is_dumped in mappings(pid):
            if not is_dumped and end - begin > 1 << 20:
                continue  # a sanitizer's shadow
            memory.seek(begin)
            content = memory.read(end - begin)
            for needle, value in needles.items():
                if value not in content:
                    continue
                if is_dumped:
                    dumped.add(f"{needle} in {name} {begin:x}+{content.index(value):x}")
                else:
                    left_out.add(needle)
    return dumped, left_out


def one_named(job: RunningJob, name: str) -> int:
    (pid,) = job.named(name)
    return pid


def test_no_core_file_has_the_secret_or_a_key(start_job: StartJob, tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    # The environment is in the frame that brings the secret: more than the agent reads at once.
    job = start_job("-np", "2", sys.executable, str(script), env={f"HVD_LONG_{i}": "x" * 100_000 for i in range(3)})
    for rank in range(2):
        job.wait_for(f"[{rank}]<stdout>:ready")
    ranks = [pid for pid, command in job.processes().items() if str(script) in command and pid != job.pid]
    assert len(ranks) == 2
    if not os.access(f"/proc/{ranks[0]}/mem", os.R_OK):
        pytest.skip("may not read the memory of other processes")
    epoch = re.findall(r"ready, epoch (\d+)\n", job.out_path.read_text())[0]
    keys = keys_of(secret_of(variable(ranks[0], "HOROVOD_AGENT")), epoch)
    expected = {
        job.pid: {"secret", "kv|0"},
        one_named(job, "hvd-agent"): {"secret"},
        one_named(job, "hvd-guard"): set(),
    }
    expected |= {pid: {"secret", "kv|0", f"ctl|{epoch}", f"data|{epoch}", f"py|{epoch}"} for pid in ranks}
    assert set(expected) == set(job.processes())
    for pid, needed in expected.items():
        dumped, left_out = found_in(pid, keys)
        assert not dumped, job.processes()[pid]
        # They are where we look, or it would prove nothing.
        assert needed <= left_out, job.processes()[pid]
