"""The wheel of `make wheel` in a clean venv that has only it, torch and scikit-learn (issue: packaging)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 900


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    result = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert result.returncode == 0, f"{command}: exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    return ROOT / run(ROOT / "scripts" / "wheel.sh", cwd=ROOT).split()[-1]


def link_installed(site: Path, names: list[str]) -> None:
    """Puts installed packages, with all they need, into another environment. Installing torch anew takes a minute."""
    wanted, linked = list(names), set[str]()
    while wanted:
        name = re.match(r"[\w.-]+", wanted.pop())[0].lower().replace("_", "-")
        if name in linked:
            continue
        linked.add(name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform
            continue
        wanted += [needed for needed in package.requires or () if "extra ==" not in needed]
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))


@pytest.fixture(scope="module")
def clean_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True, system_site_packages=False)
    run(home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    link_installed(next((home / "lib").glob("python3.*/site-packages")), ["torch", "scikit-learn"])
    return home


def clean_environment(home: Path) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {**keep, "PATH": f"{home}/bin:/usr/bin:/bin"}


def test_wheel_holds_its_libraries_under_private_names(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    libraries = [Path(n).name for n in names if ".libs/" in n]
    for stem in ("libgloo-", "libuv-"):
        assert any(n.startswith(stem) for n in libraries), libraries
    programs = [n for n in names if n.endswith(".data/scripts/horovodrun")]
    assert len(programs) == 1
    assert zipfile.ZipFile(wheel).read(programs[0])[:4] == b"\x7fELF", "horovodrun must be a native program"


def test_a_wheel_in_a_folder_of_its_own_finds_its_launcher(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", tmp_path, wheel)
    link_installed(tmp_path, ["cloudpickle"])
    python = Path(sys.base_prefix) / "bin" / "python3"  # not beside a horovodrun
    code = "from horovod.runner.launch import run_commandline; run_commandline()"
    output = run(python, "-c", code, "--check-build", "--verbose", env={"PATH": "", "PYTHONPATH": str(tmp_path)})
    assert "[X] PyTorch" in output
    has_toolkit = shutil.which("nvcc") is not None
    assert ("Kernels for GPUs: for sm_75 " in output) == has_toolkit, output
    assert "NVTX ranges: profilers see operations" in output or not has_toolkit, output


def test_wheel_trains_the_demo_in_a_clean_venv(clean_venv: Path, tmp_path: Path) -> None:
    example = tmp_path / "pytorch_digits.py"
    example.write_text((ROOT / "examples" / "pytorch_digits.py").read_text(encoding="utf-8"), encoding="utf-8")
    output = run(
        clean_venv / "bin" / "horovodrun",
        "-np",
        "2",
        clean_venv / "bin" / "python",
        example,
        env=clean_environment(clean_venv),
        cwd=tmp_path,
    )
    assert "all 2 ranks hold bitwise equal parameters" in output.splitlines()[-1]


def test_torch_alone_is_enough_to_train(wheel: Path, tmp_path: Path) -> None:
    """Without numpy, which torch does not require."""
    venv.create(tmp_path, with_pip=False, system_site_packages=False)
    site = next((tmp_path / "lib").glob("python3.*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site, wheel)
    link_installed(site, ["cloudpickle", "torch"])
    assert not (site / "numpy").exists()
    python = tmp_path / "bin" / "python"
    code = "from horovod.runner.launch import run_commandline; run_commandline()"
    example = ROOT / "examples" / "pytorch_synthetic_benchmark.py"
    quick = ["--model", "small", "--batch-size", "2", "--num-warmup-batches", "1", "--num-iters", "1"]
    output = run(python, "-c", code, "-np", "2", python, example, *quick, env=clean_environment(tmp_path))
    assert "Total img/sec on 2 CPU rank(s)" in output


@pytest.mark.parametrize("order", ["import torch, horovod.torch", "import horovod._load; import torch, horovod.torch"])
def test_gloo_symbols_come_from_the_wheel(clean_venv: Path, tmp_path: Path, order: str) -> None:
    code = f"{order}\nfrom horovod import _core\nprint(_core.gloo_library())"
    output = run(clean_venv / "bin" / "python", "-c", code, env=clean_environment(clean_venv), cwd=tmp_path)
    origin = Path(output.strip())
    assert origin.parent.name == "horovod_gloo.libs"
    assert origin.name.startswith("libgloo-")
