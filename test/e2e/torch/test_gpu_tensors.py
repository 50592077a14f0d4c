"""CUDA tensors from Python to the core and back, with the fake driver and NCCL. A GPU runs test/gpu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from built_library import ROOT, build


def parts(names: str) -> list[str]:
    return [f"fake_gpu/fake_{name}.cc" for name in names.split()]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("fakes"), "fake_cuda", parts("driver driver_memory machine"))


@pytest.fixture(scope="module")
def nccl(driver: str) -> str:
    """Finds the driver in the same folder."""
    folder = Path(driver).parent
    flags = (f"-L{folder}", "-lfake_cuda", f"-Wl,-rpath,{folder}")
    return build(folder, "fake_nccl", parts("agreement communicator group nccl nccl_controls nccl_members"), *flags)


def test_gpu_tensors_are_handed_over_with_their_stream(horovodrun: Any, driver: str) -> None:
    script = ROOT / "test/e2e/torch/gpu_tensors_worker.py"
    job = horovodrun(
        2, str(script), driver, env={"HOROVOD_CUDA_DRIVER": driver, "HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
    )
    assert job.code == 0, job.text
    assert job.out.count("gpu tensors ok") == 2, job.text


# What happens, and who comes to a good end.
@pytest.mark.parametrize(
    ("case", "good"),
    [
        ("nothing", 2),
        ("memory is not registered", 2),
        ("a member dies", 1),
        ("a member dies before it joins", 1),
        ("a member does not start", 2),
    ],
)
def test_processes_reduce_over_nccl(
    case: str, good: int, horovodrun: Any, driver: str, nccl: str, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    env = {"HOROVOD_CUDA_DRIVER": driver, "HOROVOD_NCCL_LIBRARY": nccl, "TMPDIR": str(meeting)}
    if case == "memory is not registered":
        env["HOROVOD_NCCL_REGISTER"] = "0"
    # For so long a member waits for another one's NCCL, unless it hears of its loss.
    if case == "a member does not start":
        env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "10"
    if case == "a member dies before it joins":
        env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "100"
    command = [str(ROOT / "test/e2e/torch/gpu_nccl_worker.py"), driver, nccl, case, str(tmp_path / "inside")]
    job = horovodrun(2, *command, flags=("--kill-grace", "60"), env=env)
    assert job.code == (0 if good == 2 else 137), job.text
    assert job.out.count("nccl ok") == good, job.text
    assert job.out.count("heard of the loss") == (1 if "dies" in case else 0), job.text
    assert not list(meeting.glob("fake_nccl.*"))
