"""What is used of PyTorch beyond its public API is there, or is said to be missing; torch.compile leaves us alone."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from jobs import run_to_end
from small_net import net, wrap

VERSION = f"PyTorch {re.escape(torch.__version__)}"


def test_this_version_has_all_that_is_used_beyond_the_public_api(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    private = importlib.import_module("horovod.torch._private")
    assert private.missing() == []
    monkeypatch.delattr(torch._C, "_current_graph_task_id")
    assert private.missing() == ["torch._C._current_graph_task_id"]
    wrap(fake.hvd, net())
    with pytest.raises(NotImplementedError, match=rf"{VERSION}, which has no torch\._C\._current_graph_task_id;"):
        wrap(fake.hvd, net(), synchronize_in_backward=True)
    with pytest.warns(UserWarning, match=rf"{VERSION} has no torch\._dynamo\.trace_rules\.add"):
        private.skip_package(ModuleType("rules"), "horovod")


def test_the_current_stream_needs_no_object_of_torch(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    private = importlib.import_module("horovod.torch._private")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7000 + device, raising=False)
    assert private.stream_getter()(3) == 7003
    monkeypatch.delattr(torch._C, "_cuda_getCurrentRawStream")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=9000 + device))
    assert private.stream_getter()(3) == 9003


ASK = """
import os, torch._dynamo.trace_rules as rules, horovod
ask = lambda: print(rules.check_file(os.path.join(os.path.dirname(horovod.__file__), "torch", "_allreduce.py")).skipped)
"""
US_FIRST = f"import horovod.torch\n{ASK}\nask()"
THEM_FIRST = f"{ASK}\nask()\nimport horovod.torch\nask()"


@pytest.mark.parametrize(("script", "skipped"), [(US_FIRST, ["True"]), (THEM_FIRST, ["False", "True"])])
def test_torch_compile_skips_our_files_whichever_is_imported_first(script: str, skipped: list[str]) -> None:
    job = run_to_end([sys.executable, "-c", script])
    assert job.out.split() == skipped, job.text
