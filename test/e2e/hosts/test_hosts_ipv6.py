"""Hosts whose network has no IPv4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_job import REDUCE, StartOn, assert_nothing_left, wait_ready
from launcher_job import eventually
from netns import Network

if not Path("/proc/sys/net/ipv6").is_dir():
    pytest.skip("the kernel has no IPv6", allow_module_level=True)


@contextlib.contextmanager
def without_ipv4(network: Network) -> Iterator[None]:
    """Every host has one address, an IPv6 one, under its name; loopback has both, as it always does."""
    hosts_file = network.folder / "hosts"
    names = hosts_file.read_text()
    addresses = {host: host.address for host in network.hosts.values()}
    saved = {host: host.shell("ip -4 -o address show | awk '{print $2, $4}'") for host in addresses}
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    try:
        for number, host in enumerate(addresses, start=1):
            host.stop_sshd()
            others = [line.split()[0] for line in saved[host].splitlines() if not line.startswith("lo ")]
            host.shell(
                "".join(f"ip -4 address flush dev {name};" for name in others)
                + f"ip -6 address add fd77::{number}/64 dev {host.interface} nodad"
            )
            host.address = f"fd77::{number}"
            lines.append(f"{host.address} {host.name}")
        hosts_file.write_text("\n".join(lines) + "\n")
        for host in addresses:
            host.start_sshd()
        yield
    finally:
        hosts_file.write_text(names)
        for host, address in addresses.items():
            host.stop_sshd()
            back = [line.split() for line in saved[host].splitlines() if not line.startswith("lo ")]
            host.shell(
                f"ip -6 address flush dev {host.interface} scope global;"
                + "".join(f"ip address replace {net} dev {name};" for name, net in back)
            )
            host.address = address
            host.start_sshd()


@pytest.mark.parametrize("flags", [(), ("--tls",), ("--fan-out", "1")], ids=["plain", "tls", "fan-out"])
def test_a_job_needs_no_ipv4(network: Network, start_on: StartOn, flags: tuple[str, ...]) -> None:
    a, b, c = network.hosts.values()
    with without_ipv4(network):
        job = start_on(c, "-np", "4", *flags, "-H", "a:2,b:2", *REDUCE)
        wait_ready(job, 4)
        assert "started from here instead" not in job.err, job
        for host in (a, b, c):
            found = {socket.address for socket in host.listeners() if socket.port != 22}
            assert found - {"127.0.0.1", "::1"} == {host.address}, (host.name, found)
        job.process.terminate()
        eventually(lambda: job.process.poll() is not None, "the job ends")
        assert_nothing_left(network, job)


def test_addresses_of_ipv6_may_stand_for_names(network: Network, start_on: StartOn) -> None:
    a, b, c = network.hosts.values()
    with without_ipv4(network):
        for host in (a, b):
            with c.known_hosts.open("a") as known:
                known.write(f"{host.address} {host.host_key}")
        job = start_on(c, "-np", "3", "-H", f"[{a.address}]:2,[{b.address}]:1", *REDUCE)
        wait_ready(job, 3)
