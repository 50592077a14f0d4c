"""`python -m horovod` says what a report of a problem needs, and no secret."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import horovod
import horovod.__main__ as report


def test_the_report_has_versions_and_variables_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1048576")
    monkeypatch.setenv("HOROVOD_SECRET_FILE", "/home/me/secret")
    done = subprocess.run([sys.executable, "-m", "horovod"], capture_output=True, text=True, timeout=60, check=True)
    facts = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert facts["horovod"].startswith(f"{horovod.__version__}, ")
    assert facts["torch"] == version("torch")
    assert "libgloo" in facts["core"]
    assert facts["horovodrun"].endswith(horovod.__version__)
    assert facts["HOROVOD_FUSION_THRESHOLD"] == "1048576"
    assert facts["HOROVOD_SECRET_FILE"] == "(set)"
    assert "/home/me" not in done.stdout


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ImportError("libgloo.so.0: cannot open shared object file")

    def nowhere() -> str:
        raise FileNotFoundError("horovodrun is nowhere")

    monkeypatch.setattr(report, "load_core", refuse)
    monkeypatch.setattr(report, "find_launcher", nowhere)
    text = report.report()
    assert "core: cannot be loaded: libgloo.so.0: cannot open shared object file\n" in text
    assert "horovodrun: horovodrun is nowhere\n" in text
