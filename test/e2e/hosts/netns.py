"""Hosts made of network namespaces: each with its own interfaces, names, home directory and sshd. See README.md.

All of it hangs on processes that this one has started and that end with it. Nothing is made outside the new namespaces
but files under the folder that the caller names.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

PATIENCE_S = 120.0  # of the harness, for a machine that is busy; the bounds of the product are in the tests

_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "ssh", "ssh-keygen", "sshd")

# The flags of unshare(2), tried in a process of its own, which then makes the two kinds of interface that are needed.
_PROBE = """
import ctypes, os, subprocess, sys
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET) != 0:
    number = ctypes.get_errno()
    sys.exit(f"unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS): errno {number} ({os.strerror(number)})")
for words in ("ip link add br0 type bridge", "ip link add v0 type veth peer name v1"):
    made = subprocess.run(words.split(), capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(f"{words}: {made.stderr.strip()}")
"""


def tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def why_impossible() -> str:
    """Why no hosts can be made here; empty when they can."""
    missing = [name for name in TOOLS if tool(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], check=False, capture_output=True, text=True, env=_environment()
    )
    return "" if probe.returncode == 0 else f"namespaces are not allowed here: {probe.stderr.strip()}"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SBIN}"}


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


def limit_all(interface: str, gbit: float) -> str:
    """A command by which all that leaves by the interface shares this rate."""
    return f"tc qdisc add dev {interface} root tbf rate {gbit}gbit burst 256kb latency 50ms"


def limit_streams(interface: str, gbit: float, *, connects: bool) -> str:
    """Commands by which each TCP connection has this rate there. The host is at the end of all that `connects`: the
    ports at that end, which its kernel gave, tell connections apart, by 64 rests of them."""
    port = "sport" if connects else "dport"
    lines = [f"tc qdisc add dev {interface} root handle 1: htb default 1"]
    for rest in range(64):
        flow = f"1:{rest + 1:x}"
        lines.append(f"tc class add dev {interface} parent 1: classid {flow} htb rate {gbit}gbit burst 64kb quantum 60000")
        lines.append(f"tc filter add dev {interface} parent 1: u32 match ip {port} {rest} 0x3f flowid {flow}")
    return "; ".join(lines)


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True)


class Namespace:
    """A network, UTS and mount namespace. It lasts as long as its keeper, and that ends with this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", "echo made; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        assert self.keeper.stdout is not None
        if self.keeper.stdout.readline() != b"made\n":
            self.keeper.kill()
            raise RuntimeError(f"no namespaces for {name}")
        self.net = os.readlink(f"/proc/{self.keeper.pid}/ns/net")
        self.shell(f"ip link set lo up; hostname {name}")

    def enter(self, *command: str) -> list[str]:
        """The argument list that runs the command in here: it becomes the command, same pid, and ends with us."""
        namespaces = ["nsenter", f"--target={self.keeper.pid}", "--net", "--uts", "--mount", "--"]
        return [*namespaces, "setpriv", "--pdeathsig", "KILL", *command]

    def shell(self, script: str) -> str:
        """Runs a script in here and returns its output; raises when it fails."""
        ran = subprocess.run(
            self.enter("sh", "-euc", script), check=False, capture_output=True, text=True, env=_environment()
        )
        if ran.returncode != 0:
            raise RuntimeError(f"on {self.name}: {script}: {ran.stderr.strip()}")
        return ran.stdout

    @contextlib.contextmanager
    def changed(self, script: str, back: str) -> Iterator[None]:
        """One script has run in here, and the other runs at the end."""
        self.shell(script)
        try:
            yield
        finally:
            self.shell(back)

    def pids(self) -> set[int]:
        """Every process in here but the keeper, whoever has started it."""
        found = set()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and os.readlink(folder / "ns/net") == self.net:
                    found.add(int(folder.name))
        return found - {self.keeper.pid}

    def close(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while (left := self.pids()) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.keeper.kill()
        self.keeper.communicate()


@dataclass(frozen=True)
class Socket:
    """A row of /proc/net/tcp: an address that something listens on."""

    address: str
    port: int


class Host(Namespace):
    """A namespace that looks like a host: a home, a line of its own in every hosts file, and an sshd on port 22."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.folder = folder / name
        self.home = self.folder / "home"
        self.interface = ""
        self.address = ""
        self.sshd: subprocess.Popen[bytes] | None = None
        self.services: set[int] = set()  # pids of what else belongs to the host
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        make_key(self.home / ".ssh" / "id_ed25519")
        make_key(self.folder / "host_key")
        # What start-up files print comes before the agent's first word.
        (self.home / ".bashrc").write_text("echo Welcome to $(hostname)\nprintf 'and mind the gap'\necho noise >&2\n")

    @property
    def public_key(self) -> str:
        return (self.home / ".ssh" / "id_ed25519.pub").read_text()

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text()

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def furnish(self, hosts_file: Path) -> None:
        """Mounts what makes this a host of its own over the files of the machine."""
        user = os.getuid()
        rows = [row.split(":") for row in Path("/etc/passwd").read_text().splitlines()]
        for row in rows:
            if row[2] == str(user):
                row[5] = str(self.home)
        (self.folder / "passwd").write_text("".join(":".join(row) + "\n" for row in rows))
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        (self.folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n")
        script = "mount -t sysfs sysfs /sys; mount -t tmpfs none /run; mkdir /run/sshd;"
        script += f"mount --bind {hosts_file} /etc/hosts"
        for name in ("passwd", "resolv.conf", "nsswitch.conf"):
            if Path("/etc", name).is_file() and not Path("/etc", name).is_symlink():
                script += f"; mount --bind {self.folder / name} /etc/{name}"
        self.shell(script)

    def start_sshd(self, port: int = 22) -> None:
        config = self.folder / f"sshd_config.{port}"
        config.write_text(
            f"Port {port}\nListenAddress {self.address}\nHostKey {self.folder / 'host_key'}\nPidFile none\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "UseDNS no\nMaxStartups 50\n"
        )
        sshd = tool("sshd")
        assert sshd is not None
        with (self.folder / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(
                self.enter(sshd, "-D", "-e", "-f", str(config)),
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={"PATH": _environment()["PATH"]},
                start_new_session=True,
            )
        server = self.sshd
        wait_until(lambda: server.poll() is not None or port in self.ports(), f"sshd of {self.name} listens")
        if server.poll() is not None:
            raise RuntimeError((self.folder / "sshd.log").read_text())

    def stop_sshd(self) -> None:
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd.wait()
            self.sshd = None

    @contextlib.contextmanager
    def without_sshd(self) -> Iterator[None]:
        self.stop_sshd()
        try:
            yield
        finally:
            self.start_sshd()

    @contextlib.contextmanager
    def sshd_on(self, port: int) -> Iterator[None]:
        self.stop_sshd()
        try:
            self.start_sshd(port)
            yield
        finally:
            self.stop_sshd()
            self.start_sshd()

    @contextlib.contextmanager
    def with_text(self, path: Path, text: str) -> Iterator[None]:
        """A file that says something else for a while."""
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    def listeners(self) -> set[Socket]:
        """All TCP sockets that listen in here."""
        found = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.keeper.pid}/net/{table}").read_text().splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A":
                    address, port = local.split(":")
                    found.add(Socket(_address_text(address), int(port, 16)))
        return found

    def ports(self) -> set[int]:
        return {socket.port for socket in self.listeners()}

    def job_processes(self) -> dict[int, str]:
        """pid -> command line of what runs in here and is no part of the host: ranks, agents, ssh, launchers."""
        found = {}
        for pid in self.pids() - self.services - ({self.sshd.pid} if self.sshd else set()):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if text:  # a zombie has none
                    found[pid] = text
        return found

    def ranks(self) -> dict[int, int]:
        """rank -> pid of the job's rank processes in here (the first process of a rank, not what it has started)."""
        found: dict[int, int] = {}
        for pid in sorted(self.job_processes()):
            rank = environment_of(pid).get("HOROVOD_RANK")
            if rank is not None and environment_of(parent_of(pid)).get("HOROVOD_RANK") is None:
                found[int(rank)] = pid
        return found

    def named(self, name: str) -> list[int]:
        """Processes in here with that short name (hvd-agent, ssh, horovodrun, ...)."""
        found = []
        for pid in self.job_processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    found.append(pid)
        return found


def environment_of(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return {}


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _address_text(raw: str) -> str:
    """An address of /proc/net/tcp, in hexadecimal words of this machine's byte order."""
    words = b"".join(bytes.fromhex(raw[at : at + 8])[::-1] for at in range(0, len(raw), 8))
    return str(ipaddress.ip_address(words))


# What is the same on every host, as it is with Docker's bridge, and leads nowhere.
DOCKER_ADDRESS = "172.17.0.1"


@dataclass
class Network:
    """Hosts on one wire, a `lan`, and for each of them a second interface on a wire that nobody else is on."""

    folder: Path
    hosts: dict[str, Host] = field(default_factory=dict)
    switch: Namespace | None = None

    # host -> interface of the lan, interface of the dead end. No two hosts have a name in common but for docker0.
    INTERFACES: ClassVar = {"a": ("lan-a", "deep-a"), "b": ("en7", "store3"), "c": ("uplink", "void0")}

    def build(self) -> None:
        self.switch = Namespace("switch")
        self.switch.shell("ip link add lan type bridge; ip link set lan up")
        for number, name in enumerate(self.INTERFACES, start=1):
            host = self.hosts[name] = Host(name, self.folder)
            host.address = f"10.77.0.{number}"
            self._connect(host, number)
        hosts_file = self.folder / "hosts"
        hosts_file.write_text("127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in self.hosts.values()))
        keys = "".join(host.public_key for host in self.hosts.values())
        known = "".join(f"{host.name} {host.host_key}" for host in self.hosts.values())
        for host in self.hosts.values():
            (host.home / ".ssh" / "authorized_keys").write_text(keys)
            host.known_hosts.write_text(known)
            host.furnish(hosts_file)
            host.start_sshd()

    def _connect(self, host: Host, number: int) -> None:
        """The dead ends come first, so that they are the first that a program sees when it lists interfaces."""
        assert self.switch is not None
        host.interface, dead_end = self.INTERFACES[host.name]
        pid = host.keeper.pid
        self.switch.shell(
            f"ip link add void-{host.name} type bridge; ip link set void-{host.name} up;"
            f"ip link add x-{host.name} type veth peer name {dead_end} netns {pid};"
            f"ip link set x-{host.name} master void-{host.name} up;"
            f"ip link add p-{host.name} type veth peer name {host.interface} netns {pid};"
            f"ip link set p-{host.name} master lan up"
        )
        host.shell(
            f"ip addr add {self.dead_end_address(number)}/24 dev {dead_end}; ip link set {dead_end} up;"
            f"ip link add docker0 type bridge; ip addr add {DOCKER_ADDRESS}/16 dev docker0; ip link set docker0 up;"
            f"ip addr add {host.address}/24 dev {host.interface}; ip link set {host.interface} up"
        )

    @staticmethod
    def dead_end_address(number: int) -> str:
        return f"10.99.0.{number}"

    def cable_pulled(self, host: Host) -> AbstractContextManager[None]:
        """Takes the host off the lan: its own interface stays up, and what it sends gets lost."""
        assert self.switch is not None
        port = f"ip link set p-{host.name}"
        return self.switch.changed(f"{port} down", f"{port} up")

    def interface_down(self, host: Host) -> AbstractContextManager[None]:
        """Takes the host's interface down, and with it its routes: what it sends fails at home."""
        interface = f"ip link set {host.interface}"
        return host.changed(f"{interface} down", f"{interface} up")

    @contextlib.contextmanager
    def slow(self, limits: dict[Host, str]) -> Iterator[None]:
        """What these hosts send on the lan is limited by commands of limit_all() or limit_streams()."""
        try:
            for host, limit in limits.items():
                host.shell(limit)
            yield
        finally:
            for host in limits:
                host.shell(f"tc qdisc del dev {host.interface} root")

    def unheard(self, host: Host) -> AbstractContextManager[None]:
        """It hears the others, and what it says reaches nobody: it goes to an address that nobody's card has."""
        others = [other.address for other in self.hosts.values() if other is not host]
        nobody = f"lladdr 02:00:00:00:00:99 dev {host.interface} nud permanent"
        return host.changed(
            "; ".join(f"ip neigh replace {address} {nobody}" for address in others),
            "; ".join(f"ip neigh del {address} dev {host.interface}" for address in others),
        )

    def job_processes(self) -> dict[str, dict[int, str]]:
        """host -> what runs there and is no part of the host."""
        return {name: left for name, host in self.hosts.items() if (left := host.job_processes())}

    def kill_jobs(self) -> None:
        while left := self.job_processes():
            for pids in left.values():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        if self.switch is not None:
            self.switch.close()


def arguments_and_environments(pids: Sequence[int]) -> Iterator[tuple[int, str, bytes]]:
    """(pid, "cmdline" or "environ", content) of those processes that are still there."""
    for pid in pids:
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield pid, name, Path(f"/proc/{pid}/{name}").read_bytes()
