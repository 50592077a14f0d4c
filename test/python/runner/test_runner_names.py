"""The names under horovod.runner that integrations import do what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from horovod.runner.common.util import codec, env, hosts
from horovod.runner.common.util.host_hash import _hash, host_hash
from horovod.runner.util import network, threads
from horovod.runner.util.streams import Pipe


def test_ranks_fill_hosts_of_unequal_size_in_order() -> None:
    slots = hosts.get_host_assignments(hosts.parse_hosts("a:2, b:1,c-1.x:3"), 4, 5)
    assert [(slot.hostname, slot.to_response_string()) for slot in slots] == [
        ("a", "0,5,0,2,0,3"),
        ("a", "1,5,1,2,0,2"),
        ("b", "2,5,0,1,1,3"),
        ("c-1.x", "3,5,0,2,2,3"),
        ("c-1.x", "4,5,1,2,1,2"),
    ]
    assert len(hosts.get_host_assignments([hosts.HostInfo("a", 2), hosts.HostInfo("b", 2)], 1)) == 4
    with pytest.raises(ValueError, match="3 processes are asked for, and the hosts have 2 slots"):
        hosts.get_host_assignments([hosts.HostInfo("a", 2)], 3)
    assert hosts.INVALID_SLOT_INFO.to_response_string() == "-1,-1,-1,-1,-1,-1"


def test_the_launcher_starts_as_a_module_too() -> None:
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "x", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--num-proc: 'x' is not an integer" in done.stderr


def test_host_lists_and_files(tmp_path: Path) -> None:
    assert hosts.parse_hosts_and_slots("b:2,a:10") == (["b", "a"], {"b": 2, "a": 10})
    for bad in ("a", "a:", "a:x", "a b:1", "[::1]:2", ""):
        with pytest.raises(ValueError, match="expected name:slots"):
            hosts.parse_hosts(bad)
    file = tmp_path / "hostfile"
    file.write_text("# ours\n\na slots=2\nb   slots = 4  # new\n")
    assert hosts.parse_host_files(str(file)) == "a:2,b:4"
    file.write_text("a slots=2\nb\n")
    with pytest.raises(ValueError, match=r"hostfile:2: 'b', expected a line such as"):
        hosts.parse_host_files(str(file))


def test_what_travels_and_what_a_starter_says(monkeypatch: pytest.MonkeyPatch) -> None:
    private = ["BASH_FUNC_module%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", "X_CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"]
    assert [name for name in [*private, "PATH", "MY_OLDPWD"] if env.is_exportable(name)] == ["PATH", "MY_OLDPWD"]
    for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "3")
    with pytest.raises(RuntimeError, match="PMI_RANK is set, and PMI_SIZE is not"):
        env.get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "4")
    assert env.get_env_rank_and_size() == (3, 4)


def test_objects_and_hosts_as_text() -> None:
    text = codec.dumps_base64({"a": [1, None]})
    assert codec.loads_base64(text) == codec.loads_base64(codec.dumps_base64({"a": [1, None]}, to_ascii=False))
    assert isinstance(text, str)
    assert codec.loads_base64(codec.dumps_base64(lambda x: x + 1))(1) == 2
    assert _hash("test") == "098f6bcd4621d373cade4e832627b4f6"
    assert host_hash() == host_hash("") != host_hash("salt")
    assert host_hash().startswith(socket.gethostname().split(".")[0] + "-")


def test_threads_call_now_or_after_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    thread = threads.in_thread(seen.append, (1,), name="mine")
    thread.join()
    assert (seen, thread.name, thread.daemon) == ([1], "mine", True)
    event, stop = threading.Event(), threading.Event()
    called = threads.on_event(event, seen.append, (2,))
    event.set()
    called.join()
    never = threads.on_event(threading.Event(), seen.append, (3,), stop, check_stop_interval_s=0.01, daemon=False)
    stop.set()
    never.join()
    assert seen == [1, 2]
    threads.in_thread(lambda: 1 / 0, silent=True).join()
    assert capsys.readouterr().err == ""
    threads.in_thread(lambda: 1 / 0).join()
    assert "ZeroDivisionError" in capsys.readouterr().err
    for arguments in ((None, print), (event, print, [1]), (event, print, (), None, 1.0, False)):
        with pytest.raises(ValueError, match="expected a"):
            threads.on_event(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a tuple"):
        threads.in_thread(print, [1])  # type: ignore[arg-type]
    assert threads.execute_function_multithreaded(pow, [(2, n) for n in range(20)], True, 3) == {
        n: 2**n for n in range(20)
    }
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(divmod, [(1, 1), (1, 0)])


def test_a_pipe_holds_one_piece_and_wakes_both_sides() -> None:
    pipe = Pipe()
    got: list[str | bytes | None] = []

    def read() -> None:
        while (piece := pipe.read(3)) is not None:
            got.append(piece)

    reader = threads.in_thread(read)
    for text in ("abcd", "", "ef"):
        pipe.write(text)
    pipe.flush()
    pipe.close()
    reader.join()
    assert got == ["abc", "d", "ef"]
    with pytest.raises(RuntimeError, match="the pipe is closed"):
        pipe.write("x")
    assert Pipe().flush() is None
    blocked = Pipe()
    blocked.write(b"1")
    failed: list[BaseException] = []

    def write() -> None:
        try:
            blocked.write(b"2")
        except RuntimeError as error:
            failed.append(error)

    writer = threads.in_thread(write)
    blocked.close()
    writer.join()
    assert len(failed) == 1
    assert (blocked.read(), blocked.read()) == (b"1", None)


def test_this_host_and_its_ports() -> None:
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert "lo" in network.get_local_intfs()
    assert network.get_local_intfs("nosuch0") == set()
    assert network.get_driver_ip(["lo"]) == "127.0.0.1"
    with pytest.raises(RuntimeError, match="'nosuch0' has no IPv4 address"):
        network.get_driver_ip(["nosuch0"])
    assert network.resolve_host_address("localhost") == "127.0.0.1"
    assert network.resolve_host_address("no such host") is None
    assert network.filter_local_addresses(["localhost", "192.0.2.7"]) == ["192.0.2.7"]
    server, port = network.find_port(socket.create_server)
    with server:
        assert server.getsockname()[1] == port


def test_the_launcher_under_its_old_name() -> None:
    program = "from horovod.runner.launch import run_commandline; run_commandline()"
    command = [sys.executable, "-c", program]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0.29.0\n"
    check = "from horovod.runner import launch; assert launch.is_gloo_used(use_mpi=True); launch.check_build(True)"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    assert "[X] Gloo" in done.stdout
    assert "this Horovod needs no MPI" in done.stdout
