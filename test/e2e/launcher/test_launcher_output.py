"""What ranks print, as the user sees it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher_job import RunningJob, StartJob, eventually

from jobs import DEADLINE_S


def test_lines_carry_rank_and_stream(start_job: StartJob) -> None:
    job = start_job("-np", "2", "sh", "-c", "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2")
    assert job.wait() == 0
    assert sorted(job.out.splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"]
    assert sorted(job.err.splitlines()) == ["[0]<stderr>:err 0", "[1]<stderr>:err 1"]


def test_carriage_returns_end_lines_and_a_tail_gets_no_newline(start_job: StartJob) -> None:
    job = start_job("-np", "1", "printf", r"10%%\r20%%\rdone\nr\303\251st")
    assert job.wait() == 0
    assert job.out_path.read_bytes() == "[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\n[0]<stdout>:rést".encode()


def test_the_timestamp_comes_first(start_job: StartJob) -> None:
    for flag in ("--prefix-output-with-timestamp", "-prefix-timestamp"):
        job = start_job("-np", "1", flag, "echo", "hi")
        assert job.wait() == 0
        assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:hi\n", job.out)


def test_the_prefix_is_what_the_template_says_on_the_screen_and_in_files(start_job: StartJob, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    flags = ("-np", "2", "-H", "localhost:1,127.0.0.1:1", "--output-filename", str(logs))
    job = start_job(
        *flags, "--prefix-template", "{rank}.{local_rank}@{host} {stream}{{}}|", "sh", "-c", "echo a; echo b >&2"
    )
    assert job.wait() == 0, job
    assert sorted(job.out.splitlines()) == ["0.0@localhost stdout{}|a", "1.0@127.0.0.1 stdout{}|a"]
    assert sorted(job.err.splitlines()) == ["0.0@localhost stderr{}|b", "1.0@127.0.0.1 stderr{}|b"]
    assert (logs / "rank.1" / "stderr").read_text() == "1.0@127.0.0.1 stderr{}|b\n"
    job = start_job("-np", "1", "--timestamp", "relative", "--prefix-template", "{rank}:", "echo", "a")
    assert job.wait() == 0
    assert re.fullmatch(r"\d+\.\d{3} 0:a\n", job.out)
    job = start_job(
        "-np", "1", "--timestamp", "relative", "--color", "always", "--prefix-template", "{rank} {time}: ", "echo", "a"
    )
    assert job.wait() == 0
    assert re.fullmatch(r"\x1b\[36m0 \d+\.\d{3}: \x1b\[0ma\n", job.out)
    job = start_job("-np", "1", "--prefix-template", "{time}|", "echo", "a")
    assert job.wait() == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d\|a\n", job.out)


def test_what_is_shown_and_how_is_the_users_choice(start_job: StartJob, tmp_path: Path) -> None:
    # Rank 1 fails when the other has printed, and not a second before.
    script = (
        "printf '1%%\\r2%%\\r3%%\\nline\\n'; [ $HOROVOD_RANK = 0 ] && { touch printed; exit; };"
        " until [ -e printed ]; do sleep 0.01; done; echo reason >&2; exit 4"
    )
    logs = tmp_path / "logs"
    job = start_job(
        "-np", "2", "--show-ranks", "0", "--no-prefix", "--progress-bars", "last", "--output-filename", str(logs), "sh", "-c", script
    )
    assert job.wait() == 4
    assert job.out == "3%\nline\n"
    assert (logs / "rank.1" / "stdout").read_text() == "[1]<stdout>:3%\n[1]<stdout>:line\n"
    assert "its last lines on stderr:\n    reason\n" in job.err  # what failed is always shown
    assert "<stderr>" not in job.err
    job = start_job("-np", "1", "--timestamp", "relative", "--color", "always", "echo", "hi")
    assert job.wait() == 0
    assert re.fullmatch(r"\d+\.\d{3} \x1b\[36m\[0\]<stdout>:\x1b\[0mhi\n", job.out)


def test_a_line_is_forwarded_as_soon_as_it_is_complete(start_job: StartJob, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = start_job("-np", "1", "sh", "-c", f"echo first; until [ -e {go} ]; do :; done; echo second")
    job.wait_for("[0]<stdout>:first\n")
    assert "second" not in job.out
    go.touch()
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["first", "second"]


@pytest.mark.slow
def test_ten_megabytes_arrive_intact(start_job: StartJob) -> None:
    script = "import sys\nfor i in range(100000): sys.stdout.write(f'{i:07d} ' + 'x' * 91 + '\\n')"
    job = start_job("-np", "2", "python3", "-c", script)
    assert job.wait() == 0
    for rank in (0, 1):
        lines = job.lines(f"[{rank}]<stdout>:")
        assert len(lines) == 100000
        assert all(line == f"{i:07d} " + "x" * 91 for i, line in enumerate(lines))


def test_a_line_of_ten_megabytes_arrives_intact(start_job: StartJob) -> None:
    job = start_job("-np", "1", "python3", "-c", "import sys; sys.stdout.write('y' * 10_000_000 + '\\nend\\n')")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["y" * 10_000_000, "end"]


def test_output_filename_keeps_a_file_per_rank_and_stream(start_job: StartJob, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "logs"
    job = start_job(
        "-np", "11", "--output-filename", str(folder), "sh", "-c", "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2"
    )
    assert job.wait() == 0
    assert sorted(p.name for p in folder.iterdir()) == [f"rank.{rank:02d}" for rank in range(11)]
    for rank in range(11):
        assert (folder / f"rank.{rank:02d}" / "stdout").read_text() == f"[{rank}]<stdout>:out {rank}\n"
        assert (folder / f"rank.{rank:02d}" / "stderr").read_text() == f"[{rank}]<stderr>:err {rank}\n"
    assert len(job.out.splitlines()) == 11
    assert folder.stat().st_mode & 0o077 == 0


def test_output_filename_works_for_one_rank_and_says_what_it_cannot_make(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("-np", "1", "--output-filename", str(tmp_path / "one"), "echo", "x")
    assert job.wait() == 0
    assert (tmp_path / "one" / "rank.0" / "stdout").read_text() == "[0]<stdout>:x\n"
    (tmp_path / "file").touch()
    job = start_job("-np", "1", "--output-filename", str(tmp_path / "file" / "sub"), "echo", "x")
    assert job.wait() == 1
    assert "--output-filename: cannot make the directory" in job.err
    assert "[0]<stdout>" not in job.out


def test_stdin_of_ranks_is_empty(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", "cat; readlink /proc/self/fd/0")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["/dev/null"]


def test_ranks_can_open_their_own_stdout_and_stderr(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", "echo a > /dev/stdout; echo b > /dev/stderr")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["a"]
    assert "[0]<stderr>:b" in job.err


def resident_mib(pid: int) -> float:
    pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
def test_a_flood_of_eight_ranks_is_whole_and_takes_no_memory(start_job: StartJob) -> None:
    """100 MB: more in a second than eight ranks print in earnest. What is tested is that nothing is lost, not how fast it is."""
    script = (
        "import hashlib, os, sys\n"
        "rank, digest = os.environ['HOROVOD_RANK'], hashlib.sha256()\n"
        "for i in range(1250):\n"
        "    block = b''.join(b'%s %07d %s\\n' % (rank.encode(), i * 100 + j, b'x' * 86) for j in range(100))\n"
        "    digest.update(block)\n"
        "    sys.stdout.buffer.write(block)\n"
        "sys.stdout.flush()\n"
        "print(digest.hexdigest(), file=sys.stderr)\n"
    )
    job = start_job("-np", "8", sys.executable, "-c", script)
    peak = 0.0
    while job.process.poll() is None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            peak = max(peak, resident_mib(job.pid))
        time.sleep(0.01)
    assert job.wait() == 0
    seen = {f"[{rank}]".encode(): hashlib.sha256() for rank in range(8)}
    with job.out_path.open("rb") as out:
        for line in out:
            seen[line[:3]].update(line[len("[0]<stdout>:") :])
    said = dict(line.split("<stderr>:") for line in job.err.splitlines())
    assert {rank.decode(): digest.hexdigest() for rank, digest in seen.items()} == said
    assert peak < 60


@pytest.mark.slow
def test_a_reader_that_pauses_holds_the_ranks_and_not_the_memory(start_job: StartJob, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    counter = tmp_path / "written"
    counter.write_text("0")
    script = (
        "import sys\n"
        "for i in range(100):\n"
        "    sys.stdout.write(('z' * 1023 + '\\n') * 1024)\n"
        "    sys.stdout.flush()\n"
        f"    open({str(counter)!r}, 'w').write(str(i + 1))\n"
    )
    job = start_job("-np", "1", "python3", "-c", script, stdout=write_end)
    os.close(write_end)
    seen = ["-2", "-1"]

    def stalled() -> bool:
        # Half a second without progress: 50 looks of `eventually`.
        seen.append(counter.read_text())
        return len(seen) > 52 and len(set(seen[-50:])) == 1 and seen[-1] not in ("", "0")

    eventually(stalled, "the rank waits for the reader")
    assert int(seen[-1]) < 100
    agents = job.named("hvd-agent")
    assert len(agents) == 1
    for pid in (job.pid, agents[0]):
        assert resident_mib(pid) < 40
    total = 0
    with os.fdopen(read_end, "rb") as reader:
        while chunk := reader.read(1 << 20):
            total += len(chunk)
    assert job.wait() == 0
    assert total == 100 * 1024 * (1024 + len("[0]<stdout>:"))


def test_the_job_ends_when_nobody_reads_its_output(start_job: StartJob) -> None:
    read_end, write_end = os.pipe()
    job = start_job("-np", "2", "sh", "-c", "while :; do echo x; done", stdout=write_end)
    os.close(write_end)
    os.read(read_end, 10)
    os.close(read_end)
    assert job.wait() == 128 + signal.SIGPIPE
    assert "nobody takes the output any more" in job.err
    job.wait_all_gone()


def test_the_launcher_leaves_the_flags_of_its_stdout_alone(horovodrun_path: str) -> None:
    # The shell that started us shares the terminal or pipe: O_NONBLOCK on it would break the shell.
    read_end, write_end = os.pipe()
    subprocess.run([horovodrun_path, "-np", "1", "echo", "x"], stdout=write_end, check=True)
    assert os.get_blocking(write_end)
    os.close(read_end)
    os.close(write_end)


def test_lines_are_not_torn_where_stdout_and_stderr_are_one(horovodrun_path: str) -> None:
    """`2>&1 | tee`: a small pipe, so that a line often does not fit at once."""
    script = (
        "import os\n"
        "for i in range(400):\n"
        "    os.write(1 + i % 2, (f'{i:03d}' + 'xyz'[i % 3] * 500 + f'{i:03d}\\n').encode())\n"
    )
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    job = subprocess.Popen([horovodrun_path, "-np", "2", sys.executable, "-c", script], stdout=write_end, stderr=write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reader:
        lines = reader.read().decode().splitlines()
    assert job.wait() == 0
    pattern = re.compile(r"\[[01]\]<std(out|err)>:(\d{3})(x{500}|y{500}|z{500})\2")
    assert len(lines) == 800
    assert [line for line in lines if not pattern.fullmatch(line)] == []


def test_a_full_disk_behind_the_output_is_said_once_and_the_job_goes_on(start_job: StartJob, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        job = start_job("-np", "2", "sh", "-c", f"echo a; echo b; touch {tmp_path}/done.$HOROVOD_RANK", stdout=full.fileno())
    assert job.wait() == 0
    assert (tmp_path / "done.0").exists()
    assert (tmp_path / "done.1").exists()
    loss = "what the job prints to stdout is lost for now (write: No space left on device); the job goes on\n"
    assert job.err == f"horovodrun: {loss}horovodrun: {4 * len('[0]<stdout>:a.')} bytes of the output are lost: see above\n"


def test_output_files_are_the_users_own(start_job: StartJob, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    plants = {
        "link": lambda folder: (folder / "rank.0" / "stderr").symlink_to(precious),
        "hard": lambda folder: (folder / "rank.0" / "stderr").hardlink_to(precious),
        "fifo": lambda folder: os.mkfifo(folder / "rank.0" / "stderr"),
        "owner": lambda folder: os.chown(folder / "rank.0", 12345, -1),
        "place": lambda folder: os.chown(folder, 12345, -1),
    }
    says = {
        "link": "stderr is a symbolic link",
        "hard": "stderr is not a plain file with one name",
        "fifo": "cannot open",
        "owner": "belongs to user 12345, not to you",
        "place": "belongs to user 12345, not to you",
    }
    if os.geteuid() != 0:
        del plants["owner"], plants["place"]
    for kind, plant in plants.items():
        (tmp_path / kind / "rank.0").mkdir(parents=True)
        plant(tmp_path / kind)
        job = start_job("-np", "1", "--output-filename", str(tmp_path / kind), "echo", "x")
        assert job.wait() == 1
        assert says[kind] in job.err, kind
    (tmp_path / "folder").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder" / "rank.0").symlink_to(tmp_path / "elsewhere")
    job = start_job("-np", "1", "--output-filename", str(tmp_path / "folder"), "echo", "x")
    assert job.wait() == 1
    assert "rank.0 is a link or not a directory" in job.err
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert precious.read_text() == "keep"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a link that is another user's")
def test_output_files_are_behind_no_link_of_another_user(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name, target in {"own": tmp_path / "mine", "planted": tmp_path / "mine", "through": tmp_path / "planted"}.items():
        (tmp_path / name).symlink_to(target)
    os.chown(tmp_path / "planted", 12345, -1, follow_symlinks=False)
    for flag, name in (("--output-filename", "sub"), ("--log-dir", "sub/sub"), ("--events", "file")):
        for link in ("planted", "through"):
            job = start_job("-np", "1", flag, str(tmp_path / link / name), "echo", "x")
            assert job.wait() == 1
            assert f"{flag}: the link {tmp_path}/planted belongs to user 12345, not to you (0)" in job.err
    assert list((tmp_path / "mine").iterdir()) == []
    job = start_job("-np", "1", "--output-filename", str(tmp_path / "own" / "sub"), "echo", "x")
    assert job.wait() == 0, job
    assert (tmp_path / "mine/sub/rank.0/stdout").read_text() == "[0]<stdout>:x\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a link that is root's")
def test_roots_links_are_roots_where_the_user_namespace_does_not_know_him(public_launcher: Path) -> None:
    folder = public_launcher.parent
    (folder / "mine").mkdir()
    os.chown(folder / "mine", 12345, -1)
    (folder / "link").symlink_to("mine")
    inside = ["setpriv", "--reuid=12345", "--clear-groups", "unshare", "--user", "--map-current-user"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here, or no setpriv")
    command = [*inside, str(public_launcher), "-np", "1", "--output-filename", f"{folder}/link/sub", "echo", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=folder)
    assert done.returncode == 0, done
    assert (folder / "mine/sub/rank.0/stdout").read_text() == "[0]<stdout>:x\n"
    folder.chmod(0o777)  # where any user may have made the link
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=folder)
    assert f"the link {folder}/link belongs to user " in done.stderr


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_every_rank_is_started_once(start_job: StartJob, np: int) -> None:
    job: RunningJob = start_job("-np", str(np), "sh", "-c", "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE")
    assert job.wait() == 0
    assert sorted(job.out.splitlines()) == [f"[{r}]<stdout>:{r}/{np} {r}/{np}" for r in range(np)]
