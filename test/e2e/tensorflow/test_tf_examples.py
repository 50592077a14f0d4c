"""The TensorFlow examples do what their README says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import ROOT, assert_learned, run_to_end, without

pytestmark = pytest.mark.takes(100)

EXAMPLES = ROOT / "examples"
LAST_LINE = "test accuracy _ (wanted 0.95); all {} ranks hold bitwise equal variables"
LOOP, FIT = "tensorflow2_digits.py", "tensorflow2_keras_digits.py"
GRAPH, LAB = "tensorflow1_digits.py", "tensorflow2_classification_lab.py"
IMAGES, BATCH = 1797 * 3 // 4, 32  # in the training set; per rank and step

# Each rank gets a folder of its own to write to, so that one sees who did.
IN_OWN_FOLDER = """
import os, runpy, sys
sys.argv[1:] = [sys.argv[1], "--checkpoints", os.path.join(sys.argv[2], os.environ["HOROVOD_RANK"]), *sys.argv[3:]]
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn has the images."""
    monkeypatch.setenv("PYTHONPATH", without("jax"))


def train(horovodrun: Any, name: str, folder: Path, *flags: str) -> str:
    """Two ranks train; gives what they print. Checkpoints of rank `n` go to folder/n."""
    job = horovodrun(2, "-c", IN_OWN_FOLDER, str(EXAMPLES / name), str(folder), *flags)
    assert_learned(job, LAST_LINE.format(2))
    assert [one.name for one in folder.iterdir()] == ["0"], "rank 0 alone writes checkpoints"
    return str(job.out)


@pytest.mark.parametrize("name", [LOOP, *(pytest.param(name, marks=pytest.mark.slow) for name in (FIT, GRAPH, LAB))])
def test_digits_are_learned_without_a_launcher(name: str) -> None:
    job = run_to_end([sys.executable, str(EXAMPLES / name)])
    assert_learned(job, LAST_LINE.format(1))


def test_a_loop_of_ones_own(horovodrun: Any) -> None:
    job = horovodrun(2, str(EXAMPLES / LOOP))
    assert_learned(job, LAST_LINE.format(2))
    assert job.out.count(f"{IMAGES // 2 // BATCH} steps") == 10, "half of the steps that one rank does"


def test_fit_with_callbacks(horovodrun: Any, tmp_path: Path) -> None:
    out = train(horovodrun, FIT, tmp_path)
    steps = -(-(IMAGES // 2) // BATCH)
    assert out.count(f"{steps}/{steps} - ") == 12, "half of the steps that one rank does"
    assert sorted(one.name for one in (tmp_path / "0").iterdir()) == [f"epoch-{i:02d}.keras" for i in range(1, 13)]


def test_a_graph_with_hooks(horovodrun: Any, tmp_path: Path) -> None:
    """Then again, from the checkpoint that rank 0 alone has: the hook gives the others its variables and its step."""
    out = train(horovodrun, GRAPH, tmp_path)
    assert "step 500/600" in out, "half of 1200 steps"
    written = {one.name for one in (tmp_path / "0").iterdir()}
    assert {"checkpoint", "model.ckpt-600.index"} <= written, written

    out = train(horovodrun, GRAPH, tmp_path, "--steps", "1400")
    assert "step 600/700" in out
    assert "step 0/700" not in out


def test_the_lab(horovodrun: Any, tmp_path: Path) -> None:
    out = train(horovodrun, LAB, tmp_path)
    assert f"{IMAGES // BATCH // 2 * 12} steps in 12 epochs" in out, "half of the steps and half of the epochs"
    assert len(list((tmp_path / "0").iterdir())) == 12


def test_the_example_finds_ranks_that_differ(horovodrun: Any, tmp_path: Path) -> None:
    """Without the broadcast the ranks' variables differ, and the example says so and fails."""
    text = (EXAMPLES / GRAPH).read_text()
    without = tmp_path / "without.py"
    without.write_text(text.replace("hvd.BroadcastGlobalVariablesHook(0), ", ""))
    assert without.read_text() != text
    job = horovodrun(2, str(without), "--steps", "100")
    assert job.code == 1, job.text
    assert "DIFFERENT variables" in job.out
