"""What says which hosts there are: a script, a fixed list, a class of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from horovod.runner.elastic import discovery
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from jobs import program


def of_script(text: str) -> dict[str, int]:
    return HostDiscoveryScript(text, 3).find_available_hosts_and_slots()


def test_a_script_prints_hosts_with_or_without_slots(tmp_path: Path) -> None:
    assert of_script(r"printf 'b:2\n\n  a \r\nc-1.x:0\nb:4'") == {"b": 6, "a": 3, "c-1.x": 0}
    assert of_script("true") == {}
    file = Path(program(tmp_path / "two words.sh", "#!/bin/sh\necho host-1:$1\n"))
    script = HostDiscoveryScript(f"'{file}' 5", 1)
    assert isinstance(script, HostDiscovery)
    assert script.find_available_hosts_and_slots() == {"host-1": 5}
    file.write_text("#!/bin/sh\necho host-2\n")
    assert script.find_available_hosts_and_slots() == {"host-2": 1}


@pytest.mark.parametrize(("text", "code"), [("echo a; exit 3", "3"), ("no-such-script", "127"), ("kill -9 $$", "-9")])
def test_a_script_that_fails_is_a_runtime_error(text: str, code: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=rf"^{text.replace('$', '.')}: failed with exit code {code}$"):
        of_script(text)
    capfd.readouterr()


@pytest.mark.parametrize("line", ["a:", "a:x", "a b", "a:1:2", ":2", "a:-1"])
def test_a_line_that_is_no_host_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=rf"its line 2 '{line}', expected host or host:slots"):
        of_script(f"echo good; echo '{line}'")


def test_a_script_that_hangs_is_killed_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_SCRIPT_LIMIT_S", 0.5)
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(RuntimeError, match=r"killed, as it still ran after 0\.5 s"):
        of_script(f"sleep 600 > {fifo} & sleep 600 > {fifo}")
    os.set_blocking(end, True)
    with open(end, "rb") as pipe:
        assert pipe.read() == b""  # when nobody holds its other end any more


def test_what_a_script_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert of_script(f"(until [ -e {go} ]; do sleep 0.05; done) & echo a") == {"a": 3}
    go.touch()


def test_fixed_hosts_are_those_that_were_set_last() -> None:
    given = {"a": 2}
    hosts = FixedHosts(given)
    given["b"] = 1
    found = hosts.find_available_hosts_and_slots()
    assert found == {"a": 2}
    hosts.set({"c": 4})
    assert found == {"a": 2}
    assert hosts.find_available_hosts_and_slots() == {"c": 4}


def test_a_class_of_ones_own_says_what_it_finds() -> None:
    class Odd(HostDiscovery):
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            return {"a": 1}

    assert Odd().find_available_hosts_and_slots() == {"a": 1}
    incomplete: Any = type("Incomplete", (HostDiscovery,), {})
    with pytest.raises(TypeError, match="find_available_hosts_and_slots"):
        incomplete()
