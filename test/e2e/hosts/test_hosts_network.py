"""What can be seen of a job from the network and from the process table of its hosts."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from hosts_job import HERE, REDUCE, StartOn, assert_nothing_left, wait_ready
from launcher_job import RunningJob, eventually
from netns import (
    PATIENCE_S,
    Host,
    Network,
    arguments_and_environments,
    environment_of,
    limit_all,
    limit_streams,
)

LOOPBACK = {"127.0.0.1", "::1"}


def addresses_of_job(host: Host) -> set[str]:
    """Where anything of the job listens on the host."""
    return {socket.address for socket in host.listeners() if socket.port != 22}


def test_the_dead_ends_are_up_and_lead_nowhere(network: Network) -> None:
    """The trap of the tests below is one: without it they would prove nothing."""
    for number, host in enumerate(network.hosts.values(), start=1):
        names = host.shell("ip -brief address")
        assert f"{network.dead_end_address(number)}/24" in names
        assert "172.17.0.1/16" in names
    probe = (
        "import socket, sys; s = socket.socket(); s.settimeout(1); print(s.connect_ex((sys.argv[1], 22)) == 0, end='')"
    )
    a = network.hosts["a"]
    assert a.shell(f'{sys.executable} -c "{probe}" {network.dead_end_address(2)}') == "False"
    assert a.shell(f'{sys.executable} -c "{probe}" {network.hosts["b"].address}') == "True"


def test_a_job_listens_on_the_route_between_its_hosts_alone(network: Network, start_on: StartOn) -> None:
    a, b, c = network.hosts.values()
    # As many ports as ranks of a host: each has to find the one that is left.
    job = start_on(c, "-np", "4", "-H", "a:2,b:2", "--port-range", "40000-40001", *REDUCE)
    wait_ready(job, 4)
    assert addresses_of_job(c) == {c.address}  # the rendezvous
    assert addresses_of_job(a) == {a.address} | LOOPBACK  # the ranks; loopback for those of the same host
    assert addresses_of_job(b) == {b.address} | LOOPBACK
    assert a.ports() == b.ports() == {22, 40000, 40001}  # a port a rank, and sshd's
    assert len(c.ports() & {40000, 40001}) == 1


@pytest.mark.parametrize("sockets", [1, 3])
def test_large_messages_go_over_as_many_connections_as_are_asked_for(
    sockets: int, network: Network, start_on: StartOn
) -> None:
    a, b, c = network.hosts.values()
    variable = ("-x", f"HOROVOD_SOCKETS_PER_PEER={sockets}")
    job = start_on(c, "-np", "2", "-H", "a:1,b:1", *variable, *REDUCE, "--elements", "4000000")
    wait_ready(job, 2)
    between = [line for line in a.shell("ss -Htn state established").splitlines() if f"{b.address}:" in line]
    assert len(between) == 1 + sockets, between  # one for control messages


@pytest.mark.parametrize("bounded", ["each connection", "all together"])
def test_more_connections_are_used_where_the_network_bounds_each(
    bounded: str, network: Network, start_on: StartOn
) -> None:
    a, b, c = network.hosts.values()
    limits = {host: limit_all(host.interface, 0.5) for host in (a, b)}
    if bounded == "each connection":
        limits = {host: limit_streams(host.interface, 0.2, connects=host is b) for host in (a, b)}  # as rank 1 does
    with network.slow(limits):
        verbose = ("-x", "HOROVOD_LOG_LEVEL=info")
        job = start_on(c, "-np", "2", "-H", "a:1,b:1", *verbose, *REDUCE, "--elements", "1100000")

        def trials() -> list[tuple[int, bool]]:
            """What a rank says after each: how many connections are used, and whether another number is tried."""
            pattern = r"\[0\]<stderr>:.* over more or fewer connections used=(\d) .* more_trials=([01])"
            return [(int(used), more == "1") for used, more in re.findall(pattern, job.err)]

        eventually(lambda: any(not more for _, more in trials()), "the last trial ends", PATIENCE_S * 2)
        used = trials()[-1][0]
        between = [line for line in a.shell("ss -Htn state established").splitlines() if f"{b.address}:" in line]
    if bounded == "each connection":
        assert used in (4, 8), trials()
        assert len(between) == 1 + 8, between  # which were tried; one for control messages
    else:
        assert used == 1, trials()
        assert len(between) == 1 + 4, between


def test_the_bench_of_the_network_names_a_slow_host(network: Network, start_on: StartOn) -> None:
    b, c = network.hosts["b"], network.hosts["c"]
    bench = ("-m", "horovod.bench", "network", "--message=1M", "--sizes=4", "--gradients=1M", "--seconds=0.05")
    with network.slow({b: limit_all(b.interface, 0.1)}):
        job = start_on(c, "-np", "4", "-H", "a:2,b:1,c:1", sys.executable, *bench)
        assert job.wait(PATIENCE_S * 2) == 0, job
    lines = job.lines("[0]<stdout>:")
    assert lines[0] == "# ranks: 4 on a 2, b 1, c 1"
    links = re.findall(r"^ +(\w -> \w|inside \w) +\d", "\n".join(lines), re.MULTILINE)
    assert sorted(links) == ["a -> b", "a -> c", "b -> a", "b -> c", "c -> a", "c -> b", "inside a"]
    slow = {line.split(": ")[1] for line in lines if line.startswith("slow: ")}
    assert slow >= {"b -> a", "b -> c"}, job  # another one where the processors are busy: it really is slow then


def test_interfaces_may_have_another_name_on_every_host(network: Network, start_on: StartOn) -> None:
    a, b, c = network.hosts.values()
    names = f"{a.interface},{b.interface},{c.interface}"
    job = start_on(c, "-np", "4", "-H", "a:2,b:2", "--network-interfaces", names, *REDUCE)
    wait_ready(job, 4)
    for host in (a, b):
        assert addresses_of_job(host) == {host.address}
        for pid in host.ranks().values():
            variables = environment_of(pid)
            assert variables["HOROVOD_GLOO_IFACE"] == host.interface
            assert variables["NCCL_SOCKET_IFNAME"] == names
    assert addresses_of_job(c) == {c.address}


def test_a_host_without_any_of_the_interfaces_is_named(network: Network, start_on: StartOn) -> None:
    a, b, c = network.hosts.values()
    command = ("-np", "2", "-H", "a:1,b:1", "--network-interfaces")
    job = start_on(c, *command, f"{a.interface},{c.interface}", *REDUCE)
    assert job.wait(PATIENCE_S) == 1
    assert f"host b: its agent says: it has none of the network interfaces '{a.interface},{c.interface}'" in job.err
    assert b.interface in job.err
    assert "ready" not in job.out
    assert_nothing_left(network, job)
    job = start_on(c, *command, "no-such-nic", *REDUCE)
    assert job.wait(PATIENCE_S) == 1
    assert "this machine has no interface 'no-such-nic' with an address" in job.err


def test_interfaces_that_lead_nowhere_are_an_error_with_the_address(network: Network, start_on: StartOn) -> None:
    job = start_on(network.hosts["a"], "-np", "2", "-H", "a:1,b:1", "--network-interfaces", "deep-a,store3", *REDUCE)
    assert job.wait(PATIENCE_S) == 1
    assert "host b: its agent says: it cannot connect to the launcher's rendezvous server at 10.99.0.1 port " in job.err
    assert_nothing_left(network, job)


# Asks the agent for the secret, as a rank does (docs/design/job-bootstrap.md), prints it and becomes the worker.
ASK_AND_REDUCE = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
    s.connect("\\0" + os.environ["HOROVOD_AGENT"])
    s.sendall(b"HVDAGNT3\\x01" + bytes(4))
    answer = b""
    while chunk := s.recv(100):
        answer += chunk
print("secret", answer[-32:].hex(), flush=True)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_no_secret_and_no_value_of_the_environment_is_on_an_argument_list(network: Network, start_on: StartOn) -> None:
    value = uuid.uuid4().hex
    job = start_on(
        network.hosts["c"], "-np", "4", "-H", "a:2,b:2", sys.executable, "-c", ASK_AND_REDUCE, *REDUCE[1:],
        env={"HVD_TEST_TOKEN": value},
    )  # fmt: skip
    wait_ready(job, 4)
    secrets = {line for rank in range(4) for line in job.lines(f"[{rank}]<stdout>:secret ")}
    assert len(secrets) == 1
    (secret,) = secrets
    assert len(secret) == 64
    seen = {}
    for name, host in network.hosts.items():
        pids = sorted(host.job_processes())
        seen[name] = len(pids)
        for pid, what, content in arguments_and_environments(pids):
            assert secret.encode() not in content, (name, pid, what)
            assert bytes.fromhex(secret) not in content, (name, pid, what)
            if what == "cmdline":
                assert value.encode() not in content, (name, pid, content)
                assert job.marker.encode() not in content, (name, pid, content)
    assert seen["a"] >= 5  # two ranks, agent and guard, the ssh session
    assert seen["b"] >= 5
    assert seen["c"] >= 3  # the launcher and two ssh clients
    for host in (network.hosts["a"], network.hosts["b"]):
        assert all(environment_of(pid)["HVD_TEST_TOKEN"] == value for pid in host.ranks().values())


def steps_of(job: RunningJob) -> int:
    return max((int(line) for line in job.lines("[0]<stdout>:steps ")), default=0)


def listeners_of_job(hosts: Iterable[Host]) -> list[str]:
    """address:port of what can be reached from outside."""
    return [f"{s.address}:{s.port}" for h in hosts for s in h.listeners() if s.address == h.address and s.port != 22]


def test_garbage_from_another_host_harms_no_rank(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    """Every listener of the job is fed while the ranks work; they go on, and end well."""
    a, b, c = network.hosts.values()
    end = tmp_path / "end"
    job = start_on(c, "-np", "4", "-H", "a:2,b:2", *REDUCE, "--until", str(end))
    wait_ready(job, 4)
    feeders = []
    for sender, receivers in ((b, (a, c)), (a, (b,))):
        targets = listeners_of_job(receivers)
        assert len(targets) == len(receivers) + 1  # two ranks on a and on b, the rendezvous on c
        command = sender.enter(sys.executable, str(HERE / "feed_garbage.py"), *targets)
        feeder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        feeders.append(feeder)
        assert feeder.stdout is not None
        assert [feeder.stdout.readline() for _ in targets] == [f"fed {target}\n" for target in targets]
    before = steps_of(job)
    eventually(lambda: steps_of(job) >= before + 100, f"the ranks go on; there is:\n{job}", PATIENCE_S)
    end.touch()
    assert job.wait(PATIENCE_S) == 0, job
    for rank in range(4):
        assert job.lines(f"[{rank}]<stdout>:")[-1] == "done"
    for feeder in feeders:
        feeder.communicate(timeout=PATIENCE_S)
        assert feeder.returncode == 0
    assert_nothing_left(network, job)


@pytest.mark.usefixtures("network")  # so that it is left out, visibly, where namespaces are not allowed
def test_localhost_needs_neither_a_hosts_file_nor_a_directory(horovodrun_path: str, tmp_path: Path) -> None:
    """A small container may lack the first, and the last may have been removed meanwhile."""
    here = tmp_path / "here"
    here.mkdir()
    script = """
        for file in /etc/hosts /etc/resolv.conf; do [ ! -e $file ] || mount --bind /dev/null $file; done
        cd "$1" && rmdir "$1" && exec "$2" -np 2 sh -c 'echo rank $HOROVOD_RANK of $HOROVOD_SIZE'
    """
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(here), horovodrun_path]
    job = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert job.returncode == 0, job.stderr
    assert sorted(line.partition(":")[2] for line in job.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    assert "horovodrun's own directory has been removed; ranks start in it\n" in job.stderr


@pytest.mark.slow  # ssh tries the dead address for some seconds
def test_a_hosts_own_name_may_be_loopback_and_another_may_have_two_addresses(
    network: Network, start_on: StartOn
) -> None:
    """As Debian writes its own name into /etc/hosts, and as a name that a server answers with several, one of them dead."""
    _, b, c = network.hosts.values()
    hosts_file = network.folder / "hosts"
    text = hosts_file.read_text()
    dead = network.dead_end_address(2)
    hosts_file.write_text(
        text.replace(f"{c.address} c", "127.0.1.1 c").replace(f"{b.address} b", f"{dead} b\n{b.address} b")
    )
    try:
        job = start_on(c, "-np", "3", "-H", "a:1,b:1,c:1", *REDUCE)
        wait_ready(job, 3)
    finally:
        hosts_file.write_text(text)
