"""What somebody on the network between two hosts can read of a job, without TLS and with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hosts_job import StartOn
from netns import PATIENCE_S, Network

# Keeps what passes an interface until its standard input ends; says when it has begun.
CAPTURE = """
import select, socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
wire.bind((sys.argv[1], 0))
print("begun", flush=True)
with open(sys.argv[2], "wb") as seen:
    while sys.stdin not in select.select([sys.stdin, wire], [], [])[0]:
        seen.write(wire.recv(1 << 17))
    wire.setblocking(False)
    try:
        while True:
            seen.write(wire.recv(1 << 17))
    except BlockingIOError:
        pass
"""

# Numbers whose bytes are easily found, in small and large messages, without a framework, so that it starts quickly.
WORK = """
import ctypes, struct
from horovod._common.native import core
core.init()
marker, = struct.unpack("d", b"gradient")
for count in (16, 100_000):
    values = (ctypes.c_double * count)(*([0.0 if core.rank() else marker] * count))
    address = ctypes.addressof(values)
    tensor = (address, address, [count], core.DTYPE_FLOAT64, -1)
    call = (core.OP_ALLREDUCE, f"sum.{count}", -1, ())
    core.enqueue(call, tensor, (core.REDUCE_SUM, 1.0, 1.0, 0), values).wait()
    assert list(values) == [marker] * count
core.shutdown()
print("done", flush=True)
"""


def capture(network: Network, start_on: StartOn, path: Path, *flags: str) -> bytes:
    """What passed b's interface while a job of two ranks, on a and b, ran from c."""
    a, b, c = network.hosts.values()
    sniffer = subprocess.Popen(
        b.enter(sys.executable, "-c", CAPTURE, b.interface, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert sniffer.stdout is not None
    assert sniffer.stdout.readline() == b"begun\n"
    job = start_on(c, "-np", "2", "-H", f"{a.name}:1,{b.name}:1", *flags, sys.executable, "-c", WORK)
    assert job.wait(PATIENCE_S) == 0, job
    assert all(job.lines(f"[{rank}]<stdout>:") == ["done"] for rank in range(2)), job
    sniffer.communicate(timeout=PATIENCE_S)
    assert sniffer.returncode == 0
    return path.read_bytes()


def test_nothing_of_a_job_with_tls_can_be_read_on_the_wire(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    words = {
        "tensors": b"gradientgradient",
        "the rendezvous": b"POST /v1/join",
    }
    clear = capture(network, start_on, tmp_path / "clear")
    for what, word in words.items():
        assert word in clear, f"the capture misses {what} even without TLS"
    secret = capture(network, start_on, tmp_path / "secret", "--tls")
    assert len(secret) > 800_000  # the job's data did pass there
    for what, word in words.items():
        assert word not in secret, what
