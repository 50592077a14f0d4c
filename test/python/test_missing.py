"""Names of Horovod 0.28 that are not built say so when they are imported, and nothing else is disturbed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import horovod
from horovod import _missing
from jobs import run_to_end


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("horovod.ray.driver_service", r"jobs on Ray are started by horovod\.ray\.RayExecutor"),
        ("horovod.runner.elastic.driver", "start them with horovodrun --min-np"),
        ("horovod.runner.gloo_run", "start jobs with horovodrun"),
        ("horovod.runner.common.util.network", "start jobs with horovodrun"),
    ],
)
def test_importing_what_is_not_built_says_so(name: str, reason: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=reason):
        importlib.import_module(name)


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        ("horovod.runner", "_HorovodArgs", "start jobs with horovodrun"),
        ("horovod.runner", "gloo_run", "start jobs with horovodrun"),
        ("horovod.runner.common.util", "settings", "start jobs with horovodrun"),
        ("horovod.runner.common.util", "safe_shell_exec", "start jobs with horovodrun"),
        ("horovod.runner.launch", "parse_args", "start jobs with horovodrun"),
        ("horovod.runner.elastic", "driver", "start them with horovodrun --min-np"),
        ("horovod.runner.elastic.discovery", "HostManager", "start them with horovodrun --min-np"),
    ],
)
def test_a_name_that_is_not_built_says_so_when_it_is_imported_from_where_it_was(
    module: str, name: str, reason: str
) -> None:
    with pytest.raises(ImportError, match=rf"^{module}\.{name}: .*{reason}"):
        exec(f"from {module} import {name}")


def test_names_that_are_there_are_imported_as_ever() -> None:
    names: dict[str, Any] = {}
    exec("from horovod.runner.util import streams; from horovod.runner.launch import check_build", names)
    assert names["streams"].Pipe
    assert names["check_build"]


def test_whether_a_name_is_there_may_be_asked() -> None:
    for module in ("horovod.runner", "horovod.runner.common.util", "horovod.runner.launch"):
        assert not hasattr(importlib.import_module(module), "nonsense")
    launch = importlib.import_module("horovod.runner.launch")
    assert not hasattr(importlib.import_module("horovod.runner"), "_HorovodArgs")
    assert not hasattr(launch, "parse_args")
    assert getattr(launch, "parse_args", 3) == 3
    with pytest.raises(AttributeError, match=r"horovod\.runner\.launch\.parse_args: .*start jobs with horovodrun"):
        launch.parse_args([])


def test_whether_a_module_is_there_may_be_asked() -> None:
    assert importlib.util.find_spec("horovod.runner.gloo_run") is None
    assert importlib.util.find_spec("horovod.runner.launch") is not None
    with pytest.raises(ModuleNotFoundError, match="start jobs with horovodrun"):
        importlib.import_module("horovod.runner.gloo_run")


def test_finders_may_be_asked_one_by_one() -> None:
    ask = "import sys, horovod\nfor one in sys.meta_path: assert one.find_spec({!r}, None) is None"
    for name in ("sparkling", "horovod.runner.gloo_run"):
        exec(ask.format(name), {})
        job = run_to_end([sys.executable, "-c", ask.format(name)])  # where nobody has called the script
        assert job.code == 0, job.text


def test_other_names_are_missing_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod\.nonsense'"):
        importlib.import_module("horovod.nonsense")
    with pytest.raises(ModuleNotFoundError, match="No module named 'sparkling'"):
        importlib.import_module("sparkling")
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from horovod.common import nonsense")


def test_the_finder_is_there_once_and_last() -> None:
    importlib.reload(horovod)
    assert [type(finder).__module__ for finder in sys.meta_path].count(_missing.__name__) == 1


@pytest.mark.parametrize(("backend", "is_refused"), [("torch", True), ("jax", True), ("tensorflow", False)])
def test_the_tf_keras_module_names_the_right_one_for_other_backends(fake: Any, backend: str, is_refused: bool) -> None:
    checks = importlib.import_module("horovod._keras.checks")
    keras = SimpleNamespace(backend=SimpleNamespace(backend=lambda: backend))
    if is_refused:
        with pytest.raises(ImportError, match=rf"computes with '{backend}' here .*`import horovod\.keras as hvd`"):
            checks.require_tensorflow_backend(keras)
    else:
        checks.require_tensorflow_backend(keras)
