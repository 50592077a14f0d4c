"""A thousand hostile sockets at the ports of a job that works: nobody who holds the secret notices."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from launcher_job import StartJob

TRAIN = """
import sys
import torch
import horovod.torch as hvd

for attempt in range(2):  # the second one meets at the rendezvous server while that is under attack, too
    hvd.init()
    if attempt == 0:
        print("ready", flush=True)
        with open(f"{sys.argv[1]}.{hvd.rank()}") as gate:
            gate.read()
    for _ in range(4):  # the first one connects the ranks for data
        assert hvd.allreduce(torch.ones(4 << 20), op=hvd.Sum, name="x")[-1] == 2
    hvd.shutdown()
print("trained", flush=True)
"""

# Keeps `count` connections to the ports, another as soon as one is closed: silent ones, or ones that begin well and stop,
# hellos and HTTP without the key, another program's first words.
CROWD = """
import selectors, socket, sys
silent, count, ports = sys.argv[1] == "silent", int(sys.argv[2]), [int(port) for port in sys.argv[3:]]
hello = b"HVDXPORT\\x02\\x00\\x02\\x00" + (1).to_bytes(4, "little") + bytes(4) + (1).to_bytes(8, "little") + bytes(128)
words = [b""] if silent else [hello[:12], hello, b"POST /v1/join HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 99\\r\\n\\r\\n", b"SSH-2.0-scan\\r\\n"]
selector, made = selectors.DefaultSelector(), 0

def open_one():
    global made
    made += 1
    connection = socket.socket()
    connection.setblocking(False)
    try:
        connection.connect(("127.0.0.1", ports[made % len(ports)]))
    except BlockingIOError:
        pass
    except OSError:
        return  # a rank that has shut down
    try:
        connection.send(words[made % len(words)])
    except OSError:
        pass
    selector.register(connection, selectors.EVENT_READ)

for _ in range(count):
    open_one()
print("crowded", flush=True)
while selector.get_map():
    for key, _ in selector.select():
        try:
            gone = not key.fileobj.recv(4096)
        except OSError:
            gone = True
        if gone:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            open_one()
"""


def listening_ports(pids: Iterable[int]) -> set[int]:
    """The TCP ports that these processes listen on."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_a_thousand_hostile_sockets_do_not_disturb_large_allreduces(start_job: StartJob, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate.{rank}" for rank in range(2)]
    for gate in gates:
        os.mkfifo(gate)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    job = start_job("-np", "2", sys.executable, str(script), str(tmp_path / "gate"), env={"HOROVOD_GLOO_TIMEOUT_SECONDS": "20"})
    job.wait_for("[0]<stdout>:ready")
    job.wait_for("[1]<stdout>:ready")
    ports = sorted(listening_ports(job.processes()))
    assert len(ports) == 3  # the rendezvous server's and two ranks'
    # Several processes, because one may have no more than 1024 descriptors.
    crowd = [
        subprocess.Popen([sys.executable, "-c", CROWD, kind, "340", *map(str, ports)], stdout=subprocess.PIPE, text=True)
        for kind in ("silent", "silent", "speaking")
    ]
    try:
        for process in crowd:
            assert process.stdout is not None
            assert process.stdout.readline() == "crowded\n"
        for gate in gates:
            gate.write_text("go")
        assert job.wait() == 0, job
        assert job.out.count("trained") == 2, job
    finally:
        for process in crowd:
            process.kill()
            process.communicate()
