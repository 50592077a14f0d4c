"""Failpoints are for the builds of tests: what users install has none of them, and says so to who asks for one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from horovod._common import native

ROOT = Path(__file__).resolve().parents[2]
INIT = "from horovod._common.native import core; core.init()"


def test_what_is_installed_has_no_failpoints(horovodrun_path: str) -> None:
    table = (ROOT / "runtime" / "base" / "failpoint.h").read_text()
    names = re.findall(r'\{"([^"]+)", Kind::', table)
    assert len(names) >= 50
    binaries = [Path(native.core.__file__), Path(horovodrun_path)]
    found = [(b.name, name) for b in binaries for text in [b.read_bytes()] for name in names if name.encode() in text]
    assert not found


def test_who_arms_one_all_the_same_is_told(horovodrun_path: str) -> None:
    env = {**os.environ, "HOROVOD_FAILPOINTS": "lane.start=kill"}
    for command in ([horovodrun_path, "-np", "1", "true"], [sys.executable, "-c", INIT]):
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1
        assert "HOROVOD_FAILPOINTS=lane.start=kill: this build has no failpoints" in ended.stderr
