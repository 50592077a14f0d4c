"""What the launcher says, and what it sets for ranks unless the user did."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launcher_job import StartJob

from jobs import DEADLINE_S

PYTHON = sys.executable
SHOW = "import os; print(*(os.environ.get(n) for n in ('OMP_NUM_THREADS', 'PYTHONFAULTHANDLER')))"


def test_a_python_file_runs_under_python_and_a_name_without_one_gets_a_hint(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('ran with', sys.argv[1:])\n")
    job = start_job("-n", "1", "train.py", "--epochs", "3")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["ran with ['--epochs', '3']"]
    assert "horovodrun: train.py is not an executable program; running it as `" in job.err
    job = start_job("-np", "1", "trian.py")
    assert job.wait() == 127
    assert "command not found: trian.py (python trian.py?)" in job.err


def test_ranks_share_the_cores_and_show_where_python_crashed(start_job: StartJob) -> None:
    unset = {"OMP_NUM_THREADS": None, "PYTHONFAULTHANDLER": None}
    job = start_job("-np", "2", PYTHON, "-c", SHOW, env=unset)
    assert job.wait() == 0
    cores = int(job.err.split("their share of ")[1].split()[0])
    assert 1 <= cores <= len(os.sched_getaffinity(0))  # fewer where a control group has a quota
    assert job.lines("[0]<stdout>:") == job.lines("[1]<stdout>:") == [f"{max(1, cores // 2)} 1"]
    assert job.err.count("OMP_NUM_THREADS") == 2  # what it is, and how to choose another number: one line
    assert len(job.err.splitlines()) == 1
    job = start_job("-np", "3", PYTHON, "-c", SHOW, env=unset, on_cores={min(os.sched_getaffinity(0))})
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["1 1"]
    assert "each of its 3 ranks, their share of 1 core;" in job.err
    job = start_job("-np", "2", PYTHON, "-c", SHOW, env={"OMP_NUM_THREADS": "7", "PYTHONFAULTHANDLER": ""})
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["7 "]
    assert job.err == ""


def test_the_last_lines_of_a_failed_rank_are_repeated_only_when_they_are_out_of_sight(start_job: StartJob) -> None:
    # The other rank prints when it is told to end: after the failure.
    script = (
        "[ $HOROVOD_RANK = 1 ] && { until [ -e ready ]; do sleep 0.01; done; echo the reason >&2; kill -KILL $$; };"
        " trap 'seq 60; exit 0' TERM; touch ready; while :; do sleep 0.01; done"
    )
    job = start_job("-np", "2", "--kill-grace", "60", "sh", "-c", script)
    assert job.wait() == 137
    assert "its last lines on stderr:\n    the reason\n" in job.err
    assert "\nProbable cause: somebody killed it, or the kernel, which does so when memory runs out" in job.err


# One thread opens a library that does not come: a FIFO. So it holds the loader's lock, which names of functions need.
CRASHES_BESIDE_LOADER = """
import ctypes, os, sys, threading, time
import horovod._common.native
libc = ctypes.CDLL(None)
os.mkfifo(sys.argv[1])
threading.Thread(target=libc.dlopen, args=(sys.argv[1].encode(), os.RTLD_LAZY), daemon=True).start()
def opens_it():
    calls = [open(f"/proc/self/task/{tid}/syscall").read().split()[0] for tid in os.listdir("/proc/self/task")]
    return "257" in calls or "56" in calls  # openat on x86-64, on ARM
while not opens_it():
    time.sleep(0.001)
ctypes.string_at(0)
"""


def test_a_rank_that_crashes_while_another_thread_loads_a_library_ends(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("-np", "1", PYTHON, "-c", CRASHES_BESIDE_LOADER, str(tmp_path / "fifo"))
    assert job.wait() == 139
    assert "[0]<stderr>:Fatal Python error: Segmentation fault" in job.err

    # SIGABRT is what --timeout sends.
    job = start_job("-np", "1", PYTHON, "-c", "import horovod._common.native, os; os.kill(os.getpid(), 6)")
    assert job.wait() == 134
    native, python = job.err.split("[0]<stderr>:Fatal Python error: Aborted")[:2]
    assert "[0]<stderr>:Native stack of the thread that has the signal, innermost call first:\n" in native
    assert re.search(r"\[0\]<stderr>:.*libc\.so\.6\([^)]+\)\[0x", native)
    assert 'File "<string>", line 1 in <module>' in python


# Its lane reads the tensor, which is not there.
CRASHES_IN_A_LANE = """
import ctypes
from horovod._common.native import core
core.init()
value = (ctypes.c_float * 1000)()
call = (core.OP_ALLREDUCE, "x", -1, ())
core.enqueue(call, (4096, ctypes.addressof(value), [1000], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()
"""


def test_a_crash_in_a_thread_of_ours_is_said_like_one_in_the_programs(start_job: StartJob) -> None:
    job = start_job("-np", "1", PYTHON, "-c", CRASHES_IN_A_LANE)
    assert job.wait() == 139
    native, python = job.err.split("[0]<stderr>:Fatal Python error: Segmentation fault")[:2]
    assert "_core" in native.partition("Native stack of the thread that has the signal")[2]
    assert 'File "<string>", line 7 in <module>' in python


def test_what_a_rank_dies_of_is_said_in_words_and_kept_for_programs(start_job: StartJob, tmp_path: Path) -> None:
    logs = tmp_path / "a" / "logs"
    crash = "import ctypes, os, horovod._common.native\nif os.environ['HOROVOD_RANK'] == '1': ctypes.string_at(0)\nimport time; time.sleep(1000)"
    job = start_job("-np", "2", "--log-dir", str(logs), PYTHON, "-c", crash)
    assert job.wait() == 139
    assert "\nProbable cause: native code used an address where nothing is" in job.err
    summary = json.loads((logs / "summary.json").read_text())
    assert (logs.stat().st_mode & 0o777, summary["format"], summary["exit_code"]) == (0o700, 1, 139)
    assert summary["command"] == [PYTHON, "-c", crash]
    assert summary["num_proc"] == 2
    assert summary["seconds"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", summary["started"])
    first = summary["first_failure"]
    assert (first["rank"], first["host"], first["exit_code"], first["signal"]) == (1, "localhost", 139, 11)
    assert first["what"] == "was killed by signal 11 (SIGSEGV)"
    assert first["cause"].startswith("native code used")
    assert any("Segmentation fault" in line for line in first["last_stderr_lines"])
    native = first["last_stderr_lines"].index("Native stack of the thread that has the signal, innermost call first:")
    assert "_ctypes" in " ".join(first["last_stderr_lines"][native + 1 : native + 12])

    job = start_job("-np", "1", "--log-dir", str(logs), PYTHON, "-c", "import nothing_like_it")
    assert job.wait() == 1
    assert "finds no module 'nothing_like_it': it is not installed on host localhost for that Python" in job.err
    assert json.loads((logs / "summary.json").read_text())["first_failure"]["signal"] is None
    job = start_job("-np", "1", "--log-dir", str(logs), "true")
    assert job.wait() == 0
    assert json.loads((logs / "summary.json").read_text())["first_failure"] is None
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    job = start_job("-np", "1", "--log-dir", str(tmp_path / "link" / "x"), "true")
    assert job.wait() == 1
    assert "--log-dir: cannot make the directory" in job.err


def test_a_rank_that_the_kernel_killed_for_want_of_memory_is_told_from_others(horovodrun_path: str) -> None:
    """The kernel's files are stand-ins in a mount namespace: nothing here is to run out of memory."""
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    job = f"{horovodrun_path} -np 2 sh -c '[ $HOROVOD_RANK = 0 ] && exec sleep 1000; echo oom_kill 6 > $EVENTS; kill -9 $$'"
    script = (
        "mount -t tmpfs none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/memory || exit 99\n"
        "if grep -q :memory: /proc/self/cgroup; then EVENTS=/sys/fs/cgroup/memory/memory.oom_control\n"
        "else EVENTS=/sys/fs/cgroup/memory.events; fi\n"
        f"export EVENTS; echo oom_kill 5 > $EVENTS; {job}"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 137, done.stderr
    wanted = "\nProbable cause: memory ran out on host localhost: since the job began, the kernel has killed 1 process of"
    assert wanted in done.stderr


# The variables of one prefix, and what else there is of names that the test knows.
TELL = """
import json, os
names = sorted(n for n in os.environ if n.startswith(("hvd.", "HVD_BIG", "BASH_FUNC_hvd")))
print(json.dumps([{n: len(os.environ[n]) if "BIG" in n else os.environ[n] for n in names}, "HOME" in os.environ]))
"""


def test_ranks_get_the_environment_or_only_what_is_named(start_job: StartJob, fake_ssh: str) -> None:
    big = {f"HVD_BIG{i}": "x" * 120_000 for i in range(15)}  # as much as exec takes
    given = {"hvd.dot": "two\nlines and a ' quote", "BASH_FUNC_hvd%%": "() { echo hi; }", **big}
    remote = ("-np", "2", "-H", "localhost:1,no-such-host.invalid:1", "--ssh-program", fake_ssh)
    job = start_job(*remote, "-x", "BASH_FUNC_hvd*", PYTHON, "-c", TELL, env=given)
    assert job.wait() == 0, job
    all_of_them = {**dict.fromkeys(big, 120000), **{name: given[name] for name in given if name not in big}}
    for rank in (0, 1):
        assert [json.loads(line) for line in job.lines(f"[{rank}]<stdout>:")] == [[all_of_them, True]]
    job = start_job(*remote, "--no-env", "-x", "hvd.*", PYTHON, "-c", TELL, env=given)
    assert job.wait() == 0, job
    for rank in (0, 1):
        assert [json.loads(line) for line in job.lines(f"[{rank}]<stdout>:")] == [[{"hvd.dot": given["hvd.dot"]}, True]]


def test_a_directory_that_may_not_be_entered_is_told_from_one_that_is_not_there(
    horovodrun_path: str, tmp_path: Path
) -> None:
    (tmp_path / "closed" / "in").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    powerless = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if powerless and subprocess.run([*powerless, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no setpriv, and root may enter any directory")
    for folder in (tmp_path / "closed", tmp_path / "closed" / "in"):
        command = [*powerless, horovodrun_path, "-np", "1", "--wdir", str(folder), "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 1
        assert f"--wdir: cannot enter the directory {folder} there: Permission denied" in done.stderr
    (tmp_path / "closed").chmod(0o700)


def test_tls_that_is_chosen_for_ranks_is_the_rendezvous_too(start_job: StartJob) -> None:
    code = "from horovod._common.native import core; core.init(); print(core.size()); core.shutdown()"
    job = start_job("-np", "2", "-x", "HOROVOD_TLS=1", PYTHON, "-c", code, env={"HOROVOD_TLS": "0"})
    assert job.wait() == 0, job
    assert job.out.count(":2\n") == 2, job


def test_the_summary_has_every_rank_and_comes_before_the_reason_of_a_failure(start_job: StartJob, tmp_path: Path) -> None:
    # Rank 1 fails when the other has ended.
    script = "[ $HOROVOD_RANK = 0 ] && { touch done; exit; }; until [ -e done ]; do sleep 0.01; done; exit 4"
    job = start_job("-np", "2", "--summary", "--log-dir", "logs", "sh", "-c", script)
    assert job.wait() == 4, job
    text = job.err[job.err.index("horovodrun: summary: exit code 4 after ") :]
    rows = [line.split() for line in text.splitlines()[1:4]]
    assert rows[0] == ["rank", "host", "end", "ran", "collectives", "data", "waited"]
    assert [(row[0], " ".join(row[2:5]), row[7:]) for row in rows[1:]] == [
        ("0", "exit code 0", ["-", "-", "-"]),  # it has no Horovod
        ("1", "exit code 4", ["-", "-", "-"]),
    ]
    assert text.index("summary: ") < text.index("the job failed: rank 1")
    assert text.endswith("Exit code: 4\n")
    summary = json.loads((tmp_path / "logs" / "summary.json").read_text())
    assert [(p["rank"], p["exit_code"], p["collectives"]) for p in summary["processes"]] == [(0, 0, None), (1, 4, None)]
    assert (summary["restarts"], summary["waited_for_most"]) == (0, None)
    quiet = start_job("-np", "1", "true")
    assert quiet.wait() == 0
    assert quiet.err == ""


def test_a_wrong_command_line_is_told_to_the_socket_of_its_own_flag_alone(horovodrun_path: str) -> None:
    def told(*words: str, reader: bool = True) -> tuple[int, bytes]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fd = theirs.fileno()
            if not reader:
                ours.close()
            command = [horovodrun_path, *(word.replace("FD", str(fd)) for word in words)]
            code = subprocess.run(command, pass_fds=[fd], capture_output=True, timeout=DEADLINE_S).returncode
            theirs.close()
            return code, ours.recv(4096) if reader else b""

    code, words = told("--results-fd", "FD", "--nonsense", "true")
    assert code == 2
    assert b"unknown flag '--nonsense'" in words
    assert told("--nonsense", "prog", "--results-fd", "FD") == (2, b"")
    assert told("-np", "0", "prog", "--results-fd", "FD") == (2, b"")
    assert told("--results-fd", "FD", "--nonsense", reader=False) == (2, b"")  # and not SIGPIPE
