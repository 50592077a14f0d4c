"""`make demo` and `make test` where packages are missing and the user may not install any."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobs import program

ROOT = Path(__file__).resolve().parents[2]

# dpkg-query answers as on a machine without libgloo-dev; the user is not root and has no sudo; apt-get must not run.
COMMANDS = {
    "dpkg-query": 'case "$*" in *libgloo-dev*) exit 1 ;; *) echo "install ok installed" ;; esac',
    "id": "echo 1000",
    "sudo": "exit 1",
    "apt-get": 'echo "$@" >> "$APT_CALLS"',
}


@pytest.fixture
def restricted_env(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in COMMANDS.items():
        program(folder / name, f"#!/bin/sh\n{script}\n")
    return dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", APT_CALLS=str(tmp_path / "apt-calls"))


@pytest.mark.parametrize("target", ["demo", "test", "wheel"])
def test_without_the_right_to_install_make_names_the_packages_and_stops(
    restricted_env: dict[str, str], tmp_path: Path, target: str
) -> None:
    done = subprocess.run(
        ["make", target], cwd=ROOT, env=restricted_env, capture_output=True, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    assert "Ask an administrator to run: apt-get install libgloo-dev\n" in done.stderr
    assert not (tmp_path / "apt-calls").exists()
    assert "passed" not in done.stdout
    assert "accuracy" not in done.stdout
