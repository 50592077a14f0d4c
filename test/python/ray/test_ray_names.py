"""horovod.ray without a cluster: its names, arguments and errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import horovod.ray
from documented import undocumented
from horovod.ray import ElasticRayExecutor, RayExecutor, ray_logger
from horovod.ray.runner import MiniSettings
from horovod.ray.utils import detect_nics, nics_to_env_var
from horovod.runner.common.util.timeout import TimeoutException

MODULES = "coordinator elastic elastic_v2 ray_logger runner settings strategy utils worker"


def test_public_names_are_documented() -> None:
    modules = [importlib.import_module(f"horovod.ray.{name}") for name in MODULES.split()]
    assert undocumented(horovod.ray, *modules) == []


WITHOUT_RAY = """
import sys

class NoRay:
    def find_spec(self, name, path, target=None):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")

sys.meta_path.insert(0, NoRay())
import horovod.torch, horovod.runner, horovod.data
assert "ray" not in sys.modules
try:
    import horovod.ray
except ImportError as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("it was imported")
"""


def test_without_ray_the_import_says_what_to_install() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_RAY], check=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_workers": 2}, "max_workers=2 was given with min_workers=None, expected above 0"),
        ({"max_workers": 2, "min_workers": 0}, "max_workers=2 was given with min_workers=0"),
        ({"min_workers": 1, "num_workers": 2}, r"min_workers and num_workers provided \(1, 2\)"),
        ({"min_workers": 1, "num_hosts": 2}, r"min_workers and num_hosts provided \(1, 2\)"),
        ({"min_workers": 3, "max_workers": 2}, "max_workers=2 is below min_workers=3"),
        ({"min_workers": -1}, "min_workers=-1, expected a whole number from 1 on"),
        ({"num_workers": 0}, "num_workers=0, expected a whole number from 1 on"),
        ({"num_workers": "4"}, "num_workers='4', expected a whole number from 1 on"),
        ({"num_hosts": 1.5}, "num_hosts=1.5, expected"),
        ({"num_hosts": 1, "num_workers_per_host": True}, "num_workers_per_host=True, expected"),
        ({"num_workers": 1, "cpus_per_worker": 0}, "cpus_per_worker=0, expected a number above 0"),
        ({"num_workers": 1, "gpus_per_worker": 1}, "gpus_per_worker=1 was given without use_gpu=True"),
        ({"num_workers": 1, "use_gpu": True, "gpus_per_worker": 0}, "gpus_per_worker=0, expected"),
        ({"min_workers": 1, "cooldown_range": (1,)}, r"cooldown_range=\(1,\), expected two numbers"),
        ({"min_workers": 1, "elastic_timeout": 0}, "elastic_timeout=0, expected"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RayExecutor(RayExecutor.create_settings(), **arguments)


def test_what_a_job_does_not_use_is_no_error() -> None:
    RayExecutor(RayExecutor.create_settings(), num_workers=1, use_gpu=False, gpus_per_worker=0)
    for name, value in {"reset_limit": 3, "cooldown_range": (1, 2)}.items():
        with pytest.warns(UserWarning, match=f"{name}=.* has no effect without min_workers") as caught:
            RayExecutor(RayExecutor.create_settings(), num_workers=1, **{name: value})  # type: ignore[arg-type]
        assert caught[0].filename == __file__


def test_elastic_settings_and_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="min_np is called min_num_proc"):
        settings = ElasticRayExecutor.create_settings(min_np=2, max_num_proc=3, verbose=2, cooldown_range=(1, 5))
    assert (settings.min_num_proc, settings.max_num_proc, settings.verbose, settings.elastic) == (2, 3, 2, True)
    with pytest.raises(TypeError, match="colour"):
        ElasticRayExecutor.create_settings(colour="blue")
    with pytest.warns(DeprecationWarning, match="min_workers"), pytest.raises(ValueError, match="gpus_per_slot=1 was"):
        ElasticRayExecutor(settings, gpus_per_slot=1)


def test_before_start_there_are_no_workers() -> None:
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=r"execute\(\): there are no workers; call start\(\) first"):
        executor.run(print)
    with pytest.raises(TypeError, match="fn=3, expected a function"):
        executor.run(3)  # type: ignore[arg-type]


def test_settings_have_their_defaults_and_keep_the_key_to_themselves() -> None:
    settings = MiniSettings()
    assert (settings.timeout_s, settings.placement_group_timeout_s, settings.verbose) == (300, 100, 1)
    assert (settings.nics, settings.ssh_port, settings.ssh_identity_file, settings.elastic) == (None, None, None, False)
    assert len(settings.key) == 32
    assert "key" not in repr(settings)
    assert 299 < settings.start_timeout.remaining() <= 300
    late = MiniSettings(timeout_s=1e-9).start_timeout
    with pytest.raises(TimeoutException, match="Timed out waiting for nodes"):
        late.check_time_out_for("nodes")
    assert RayExecutor.create_settings().timeout_s == 30


@pytest.mark.parametrize("name", ["timeout_s", "placement_group_timeout_s"])
@pytest.mark.parametrize("value", [0, -1, "30", True, float("nan")])
def test_times_are_numbers_above_0(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}="):
        RayExecutor.create_settings(**{name: value})


def test_a_private_key_is_written_once_for_this_user(tmp_path: Path) -> None:
    file = tmp_path / "key"
    for text in ("first", "second"):
        RayExecutor.create_settings(ssh_identity_file=str(file), ssh_str=text)
    assert file.read_text() == "first"
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="ssh_str without ssh_identity_file"):
        RayExecutor.create_settings(ssh_str="key")


def test_interfaces_become_variables() -> None:
    assert detect_nics(MiniSettings(nics=["eth0", "ib0"])) == ["eth0", "ib0"]
    assert detect_nics(MiniSettings(), all_host_names=["a"], node_workers=[]) == []
    assert nics_to_env_var(["eth0", "ib0"]) == {"HOROVOD_GLOO_IFACE": "eth0", "NCCL_SOCKET_IFNAME": "eth0,ib0"}
    assert nics_to_env_var([]) == {}
    settings = RayExecutor.create_settings(nics=iter(["eth0", "ib0"]))
    assert [detect_nics(settings) for _ in range(2)] == [["eth0", "ib0"]] * 2
    assert RayExecutor.create_settings(nics=[]).nics is None
    with pytest.raises(ValueError, match="nics='eth0', expected a list"):
        RayExecutor.create_settings(nics="eth0")


class Heard:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def put(self, item: Any) -> None:
        self.values.append(item)


def test_what_is_logged_is_heard_or_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "0")
    sink = Heard()
    ray_logger.configure(sink)
    ray_logger.log({"loss": 1})
    assert sink.values == [{"loss": 1}]
    ray_logger.configure(None)
    with pytest.warns(UserWarning, match="nobody listens here"):
        ray_logger.log({"loss": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ray_logger.log({"loss": 3})
    assert sink.values == [{"loss": 1}]


def test_other_ranks_are_heard_where_they_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_RANK", "1")
    sink = Heard()
    ray_logger.configure(sink)
    ray_logger.log({"loss": 1})
    ray_logger.log({"loss": 2}, chief_only=False)
    ray_logger.configure(None)
    assert sink.values == [{"loss": 2}]
