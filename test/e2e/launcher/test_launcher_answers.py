"""`horovodrun --status JOB`, asked of a process that is no horovodrun but answers as one."""

from __future__ import annotations

import os
import subprocess

import pytest

from jobs import DEADLINE_S

# Another user's process that answers as a job would: more than anybody wants, or what a terminal would do.
ANSWERER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.bind(f"\\0hvd-job-{os.geteuid()}-{os.getpid()}")
    door.listen()
    print("ready", flush=True)
    with door.accept()[0] as asker:
        asker.recv(64)
        asker.sendall(b"0" + (bytes(66 << 20) if sys.argv[1] == "much" else bytes.fromhex(sys.argv[1])))
"""


def answer_of(user: int | None, what: str, horovodrun_path: str) -> subprocess.CompletedProcess[bytes]:
    """What `--status` has of an ANSWERER of that user, or of our own."""
    command = ["/usr/bin/env", "python3", "-I", "-c", ANSWERER, what]
    with subprocess.Popen(command, user=user, stdout=subprocess.PIPE, cwd="/") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            ask = [horovodrun_path, "--status", str(process.pid)]
            return subprocess.run(ask, capture_output=True, timeout=DEADLINE_S, check=False)
        finally:
            process.kill()


def test_an_answer_is_bounded(horovodrun_path: str) -> None:
    done = answer_of(None, "much", horovodrun_path)
    assert (done.returncode, len(done.stdout)) == (1, (64 << 20) - 1)
    assert b"answers with more than 64 MiB, of which the rest is left out\n" in done.stderr


def test_another_users_answer_does_nothing_to_the_terminal(horovodrun_path: str) -> None:
    text = "für\t你\n".encode()
    controls = b"\x1b[2J\xc2\x9b2J\x9b2J\r\x7f\x00\n"
    done = answer_of(None, (text + controls).hex(), horovodrun_path)
    assert (done.returncode, done.stdout) == (0, text + controls)
    if os.geteuid() != 0:
        pytest.skip("only root can be answered by another user: what that one says is not tested")
    done = answer_of(65534, (text + controls).hex(), horovodrun_path)
    assert (done.returncode, done.stdout) == (0, text + b"?[2J?2J?2J???\n"), done
