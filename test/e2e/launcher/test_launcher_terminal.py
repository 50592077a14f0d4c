"""The launcher at a terminal: Ctrl-C, Ctrl-Z, prompts and what the user types."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from launcher_job import eventually
from terminal import Terminal

from jobs import DEADLINE_S, assert_soon, program

PYTHON = sys.executable
Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal() -> Iterator[Open]:
    terminals: list[Terminal] = []

    def open_one(*command: str, env: Mapping[str, str] | None = None) -> Terminal:
        terminals.append(Terminal(command, env))
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.close()


TIDY = """
import os, time
try:
    print("ready", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    print("tidy", flush=True)
"""


def test_ctrl_c_is_a_keyboard_interrupt_in_every_rank(open_terminal: Open, horovodrun_path: str) -> None:
    terminal = open_terminal(horovodrun_path, "-np", "2", PYTHON, "-c", TIDY)
    terminal.wait_for(":ready\n", 2)
    terminal.type("\x03")
    assert terminal.wait() == 130
    for rank in range(2):
        assert f"[{rank}]<stdout>:interrupted\n" in terminal.text
        assert f"[{rank}]<stdout>:tidy\n" in terminal.text


def test_ctrl_c_that_ends_the_reader_too_lets_the_ranks_tidy_up(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    """`| tee` gets the Ctrl-C as well, and its end is often seen first."""
    script = tmp_path / "chatty.py"
    script.write_text(
        "import os, signal\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n"
        "try:\n"
        "    while True:\n"
        "        os.write(1, b'x\\n')\n"
        "except KeyboardInterrupt:\n"
        f"    open(os.path.join({str(tmp_path)!r}, 'tidy.' + os.environ['HOROVOD_RANK']), 'w').close()\n"
    )
    terminal = open_terminal("bash", "-c", f"set -o pipefail; {horovodrun_path} -np 2 {PYTHON} {script} 2>&1 | tee /dev/null")
    terminal.wait_for("[0]<stdout>:x")
    terminal.wait_for("[1]<stdout>:x")
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert (tmp_path / "tidy.0").exists()
    assert (tmp_path / "tidy.1").exists()


def test_a_prompt_is_shown_and_answered(open_terminal: Open, horovodrun_path: str) -> None:
    script = (
        "import os, time\n"
        "if os.environ['HOROVOD_RANK'] == '0':\n"
        "    print('asked', time.monotonic(), flush=True)\n"
        "    name = input('name? ')\n"
        "    print('hello', name)\n"
        "else:\n"
        "    print('nothing:', repr(open(0).read()))\n"
    )

    def seconds() -> float:
        terminal = open_terminal(horovodrun_path, "-np", "2", PYTHON, "-c", script)
        shown = terminal.wait_for("[0]<stdout>:name? ")
        asked = float(terminal.text.split("asked ")[1].split()[0])
        terminal.wait_for("[1]<stdout>:nothing: ''\n")
        terminal.type("you\n")
        assert terminal.wait() == 0
        assert "[0]<stdout>:hello you\n" in terminal.text
        return shown - asked

    assert_soon(seconds, 0.1 + 0.4)  # the limit, and the way to the terminal


BARS = """
import os, sys, time
rank, go = os.environ["HOROVOD_RANK"], sys.argv[1]
for state in ("10%", "20%"):
    sys.stderr.write("\\r" + state + "\\x1b[31m of " + rank)
    sys.stderr.flush()
while not os.path.exists(go + rank): time.sleep(0.005)
print("a line of " + rank, flush=True)
while not os.path.exists(go): time.sleep(0.005)
sys.stderr.write("\\r100%\\n")
"""


def test_each_ranks_progress_bar_is_one_line_below_the_rest(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    go = str(tmp_path / "go")
    command = (horovodrun_path, "-np", "2", "--output-filename", str(tmp_path / "logs"), PYTHON, "-c", BARS, go)
    terminal = open_terminal(*command, env={"TERM": "xterm", "NO_COLOR": ""})
    first, second = "\x1b[36m[0]<stderr>:\x1b[0m20% of 0", "\x1b[32m[1]<stderr>:\x1b[0m20% of 1"
    terminal.wait_for(f"{first}\n{second}")  # both at once: in the order of the ranks
    Path(go + "1").touch()
    # The bars go away, the line is written, and they are back.
    terminal.wait_for(f"\r\x1b[F\x1b[J\x1b[32m[1]<stdout>:\x1b[0ma line of 1\n{first}\n{second}")
    Path(go + "0").touch()
    terminal.wait_for(f"\x1b[36m[0]<stdout>:\x1b[0ma line of 0\n{first}\n{second}")
    Path(go).touch()
    assert terminal.wait() == 0
    for colour, rank in (("36", 0), ("32", 1)):
        assert f"\x1b[{colour}m[{rank}]<stderr>:\x1b[0m100%\n" in terminal.text
    assert "10%" in (tmp_path / "logs" / "rank.1" / "stderr").read_text()  # files are as ever


def test_hosts_that_do_not_answer_are_named_while_they_are_waited_for(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    ssh = program(tmp_path / "silent_ssh", "#!/bin/sh\nexec sleep 1000\n")
    hosts = "localhost:1,far-away:1,farther:1"
    terminal = open_terminal(horovodrun_path, "-np", "3", "--ssh-program", ssh, "-H", hosts, "true")
    terminal.wait_for("horovodrun: 1 of 3 hosts have answered; waiting for far-away, farther")
    terminal.type("\x03")
    assert terminal.wait() == 130


def test_a_line_that_falls_into_another_begins_a_new_one(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = (
        f"wait_here() {{ until [ -e {go}.$HOROVOD_RANK ]; do sleep 0.01; done; }};"
        " if [ $HOROVOD_RANK = 0 ]; then printf 'one '; wait_here; echo two; else wait_here; echo between; fi"
    )
    terminal = open_terminal(horovodrun_path, "-np", "2", "--output-filename", str(tmp_path / "logs"), "sh", "-c", script)
    terminal.wait_for("[0]<stdout>:one ")
    Path(f"{go}.1").touch()
    terminal.wait_for("[1]<stdout>:between")
    Path(f"{go}.0").touch()
    assert terminal.wait() == 0
    assert terminal.text == "[0]<stdout>:one \n[1]<stdout>:between\n[0]<stdout>:two\n"
    assert (tmp_path / "logs" / "rank.0" / "stdout").read_text() == "[0]<stdout>:one two\n"


DEBUGGED = """
import os
x = 41
breakpoint()
print("x is", x, flush=True)
"""


@pytest.mark.parametrize(("np", "flags"), [(1, []), (2, ["--stdin", "all"])])
def test_breakpoint_works(open_terminal: Open, horovodrun_path: str, tmp_path: Path, np: int, flags: list[str]) -> None:
    script = tmp_path / "debugged.py"
    script.write_text(DEBUGGED)
    terminal = open_terminal(horovodrun_path, "-np", str(np), *flags, PYTHON, str(script))
    terminal.wait_for("(Pdb) ", np)
    terminal.type("x = 6 * 7\n")
    terminal.wait_for("(Pdb) ", 2 * np)
    terminal.type("p x + 1\n")
    terminal.wait_for(">:43\n", np)
    terminal.wait_for("(Pdb) ", 3 * np)
    terminal.type("c\n")
    assert terminal.wait() == 0
    for rank in range(np):
        assert f"[{rank}]<stdout>:x is 42\n" in terminal.text


def test_stdin_of_a_pipe_goes_where_it_is_wanted(horovodrun_path: str) -> None:
    data = bytes(range(256)) * 20_000  # 5 MB: more than pipes and windows hold
    wanted = hashlib.sha256(data).hexdigest()
    for flags, receivers in ((["--stdin", "all"], {0, 1}), ([], {0}), (["--stdin", "none"], set())):
        # Rank 1 ends without reading: nobody waits for it.
        reads = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
        done = subprocess.run(
            [horovodrun_path, "-np", "2", *flags, PYTHON, "-c", reads], input=data, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        empty = hashlib.sha256(b"").hexdigest()
        assert sorted(done.stdout.decode().splitlines()) == [
            f"[{rank}]<stdout>:{wanted if rank in receivers else empty}" for rank in range(2)
        ]


def test_a_rank_that_does_not_read_holds_up_neither_the_job_nor_the_others(horovodrun_path: str) -> None:
    data = b"x" * 3_000_000
    script = "[ $HOROVOD_RANK = 0 ] && exit 0; wc -c"
    command = [horovodrun_path, "-np", "2", "--stdin", "all", "sh", "-c", script]
    done = subprocess.run(command, input=data, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"[1]<stdout>:3000000\n"
    # It runs on while its input waits, and then it ends.
    done = subprocess.run([horovodrun_path, "-np", "1", "sh", "-c", "echo done"], input=data, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:done\n")


def state_of(pid: int) -> str:
    return (Path("/proc") / str(pid) / "stat").read_text().rsplit(") ", 1)[1][0]


def wait_in_front(terminal: Terminal) -> None:
    """Until the terminal belongs to the job and no longer to the shell: what is typed sooner is for the shell."""
    eventually(lambda: os.tcgetpgrp(terminal.fd) != terminal.pid, "the job is in front")


def test_ctrl_z_stops_the_job_and_fg_goes_on(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    # Not a shell: one that waits for a vfork is neither running nor seen as stopped.
    script = tmp_path / "counts.py"
    script.write_text(
        "import os, time\n"
        "with open(f'count.{os.environ[\"HOROVOD_RANK\"]}', 'w') as file:\n"
        "    print(f'pid {os.getpid()}!', flush=True)\n"
        "    while True:\n"
        "        print('x', file=file, flush=True)\n"
        "        time.sleep(0.01)\n"
    )
    count = tmp_path / "count"
    terminal = open_terminal("bash", "--norc", "--noprofile", "-i")
    terminal.type(f"PS1='shell> '; cd {tmp_path}; {horovodrun_path} -np 2 {PYTHON} {script}\n")
    terminal.wait_for("!\n", 2)
    pids = [int(pid) for pid in re.findall(r">:pid (\d+)!\n", terminal.text)]
    assert len(pids) == 2
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    eventually(lambda: [state_of(pid) for pid in pids] == ["T", "T"], "both ranks are stopped")
    seen = [os.path.getsize(f"{count}.{rank}") for rank in range(2)]
    terminal.type("fg\n")
    eventually(lambda: all(os.path.getsize(f"{count}.{rank}") > seen[rank] for rank in range(2)), "both ranks go on")
    wait_in_front(terminal)
    terminal.type("\x1a")
    terminal.wait_for("Stopped", 2)
    terminal.type("bg\n")
    eventually(lambda: not any(state_of(pid) == "T" for pid in pids), "both ranks go on")
    terminal.type("fg\n")
    wait_in_front(terminal)
    terminal.type("\x03")
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "Ctrl-C ends the ranks")
    terminal.type("exit\n")


def test_a_job_in_the_background_leaves_the_terminal_to_the_shell(open_terminal: Open, horovodrun_path: str) -> None:
    terminal = open_terminal("bash", "--norc", "--noprofile", "-i")
    terminal.type(f"PS1='shell> '; {horovodrun_path} -np 1 sh -c 'echo up; read line; echo \"read $line\"' &\n")
    terminal.wait_for("[0]<stdout>:up")
    terminal.type("echo typed-$((6*7))\n")
    terminal.wait_for("typed-42\n")  # the shell's, although rank 0 waits for a line
    terminal.type("jobs\n")
    terminal.wait_for("Running")
    terminal.type("fg\n")
    wait_in_front(terminal)
    terminal.type("now\n")
    terminal.wait_for("[0]<stdout>:read now\n")
    terminal.type("exit\n")


def test_stdin_that_is_a_file_or_closed_does_no_harm(horovodrun_path: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("line\n")
    for redirection, wanted in ((f"< {tmp_path}/in", "line"), ("<&-", ""), ("< /dev/null", "")):
        command = f"exec {horovodrun_path} -np 1 cat {redirection}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0
        assert done.stdout == (f"[0]<stdout>:{wanted}\n" if wanted else "")


def test_a_terminal_that_closes_ends_the_job(horovodrun_path: str, tmp_path: Path) -> None:
    terminal = Terminal([horovodrun_path, "-np", "1", "sh", "-c", f"trap 'echo hup > {tmp_path}/hup; exit' HUP; echo up; while :; do sleep 0.02; done"])
    terminal.wait_for("[0]<stdout>:up")
    assert terminal.hang_up() in (128 + signal.SIGHUP, 128 + signal.SIGPIPE)
    assert (tmp_path / "hup").read_text() == "hup\n"


def test_a_terminal_that_closes_leaves_the_ranks_time_to_tidy_up(horovodrun_path: str, tmp_path: Path) -> None:
    """An interactive shell passes the hang-up on, and the kernel tells the job again when the shell has ended."""
    script = tmp_path / "tidy.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))\n"
        "try:\n"
        "    print(f'pid {os.getpid()}!', flush=True)\n"
        "    time.sleep(1000)\n"
        "finally:\n"
        "    time.sleep(0.5)  # a checkpoint\n"
        f"    open({str(tmp_path / 'tidy')!r}, 'w').close()\n"
    )
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"])
    terminal.type(f"{horovodrun_path} -np 1 {PYTHON} {script}\n")
    terminal.wait_for("!\n")
    pid = re.findall(r">:pid (\d+)!\n", terminal.text)[0]
    terminal.hang_up()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the rank ends")
    assert (tmp_path / "tidy").exists()


def test_the_time_in_ctrl_z_does_not_count_as_time_to_start(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    ssh = program(
        tmp_path / "slow_ssh",
        "#!/bin/sh\n"
        'for word in "$@"; do [ "$word" = -G ] && exit 1; done\n'
        'while [ "$1" != "--" ]; do shift; done\n'
        f"echo $$ > {tmp_path}/asked; until [ -e {tmp_path}/go ]; do sleep 0.02; done\n"
        'exec sh -c "$3"\n',
    )
    terminal = open_terminal("bash", "--norc", "--noprofile", "-i")
    terminal.type(f"PS1='shell> '; {horovodrun_path} -np 1 --start-timeout 8 --ssh-program {ssh} -H far-away:1 echo started-$((6*7))\n")
    eventually((tmp_path / "asked").exists, "the launcher asks the host")
    wait_in_front(terminal)
    terminal.type("\x1a")
    terminal.wait_for("Stopped")
    time.sleep(8.1)  # longer than the time to start
    terminal.type("fg\n")
    wait_in_front(terminal)
    (tmp_path / "go").touch()
    terminal.wait_for("started-42\n")
    terminal.type("exit\n")


ONE_IS_DEBUGGED = """
import os, time
rank = int(os.environ["HOROVOD_RANK"])
print("begun", flush=True)
if rank == 1:
    breakpoint()
    print("goes on", flush=True)
    for step in range(100000):
        time.sleep(0.01)
time.sleep(1000)
"""


def test_a_rank_is_debugged_at_the_terminal_while_others_run(open_terminal: Open, horovodrun_path: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ONE_IS_DEBUGGED)
    terminal = open_terminal(horovodrun_path, "-np", "2", "--debug-rank", "1", PYTHON, str(script))
    # Its lines have no prefix and the prompt comes though its line has no end; the other rank's are as ever.
    terminal.wait_for("(Pdb) ")
    terminal.wait_for("[0]<stdout>:begun\n")
    assert "\nbegun\n" in "\n" + terminal.text
    assert "[1]<" not in terminal.text
    terminal.type("p rank * 42 + 100\n")
    terminal.wait_for("142\n(Pdb) ")
    # Ctrl-C breaks into that rank, and only that.
    terminal.type("c\n")
    terminal.wait_for("goes on\n")
    terminal.type("\x03")
    terminal.wait_for("Program interrupted.")
    terminal.wait_for("(Pdb) ", 3)
    terminal.type("p rank * 42 + 200\n")
    terminal.wait_for("242\n(Pdb) ")
    # Two within a second end the job.
    for _ in range(100):
        terminal.type("\x03")
        if not terminal.pump(0.05):
            break
    assert terminal.wait() == 130


def test_a_rank_to_which_nobody_can_type_is_not_debugged(horovodrun_path: str) -> None:
    command = [horovodrun_path, "-np", "2", "--debug-rank", "1", "true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "--debug-rank 1: nobody can type to that rank, for standard input is closed or /dev/null" in done.stderr
    # A pipe will do.
    program = ["sh", "-c", '[ "$HOROVOD_RANK" = 0 ] || { read word; printf "%s" "$word and more"; }']
    done = subprocess.run([*command[:-1], *program], input="hello\n", capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (0, "hello and more"), done.stderr
