"""How the core is loaded, exceptions, and the helpers of horovod.common."""

from __future__ import annotations

import doctest
import os
import pickle
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from horovod import _load
from horovod.common import util
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    get_version_mismatch_message,
)

# Loading


class Bound:
    def __init__(self, origin: str) -> None:
        self.gloo_library = lambda: origin


def test_a_core_bound_to_a_foreign_gloo_is_refused() -> None:
    for good in ("/usr/lib/x86_64-linux-gnu/libgloo.so.0", "/x/horovod_gloo.libs/libgloo-0a1b2c3d.so.0"):
        _load._check_gloo_library(Bound(good))  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=r"libtorch_cpu\.so"):
        _load._check_gloo_library(Bound("/x/torch/lib/libtorch_cpu.so"))  # type: ignore[arg-type]


@pytest.mark.parametrize("visible", [None, "_ZTVN4gloo7ContextE"])
def test_the_core_is_bound_deeply_only_where_a_gloo_is_visible(
    monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(_load, "_global_gloo_symbol", lambda: visible)
    monkeypatch.setattr(_load.importlib, "import_module", lambda name: seen.append(sys.getdlopenflags()))
    before = sys.getdlopenflags()
    _load._import_core()
    assert bool(seen[0] & os.RTLD_DEEPBIND) == (visible is not None)
    assert sys.getdlopenflags() == before


def test_importing_torch_shows_no_gloo_to_the_linker() -> None:
    assert _load._global_gloo_symbol() is None


# Exceptions and helpers


def test_exceptions_have_their_bases_and_attributes() -> None:
    assert issubclass(HorovodInternalError, RuntimeError)
    assert HostsUpdatedInterrupt().skip_sync is False
    assert HostsUpdatedInterrupt(skip_sync=True).skip_sync is True
    error = HorovodVersionMismatchError("torch", "1", "2")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "1", "2")
    assert get_version_mismatch_message("torch", "1", "2") in str(error)
    for one in (error, HostsUpdatedInterrupt(skip_sync=True), HorovodInternalError("rank 1 is lost")):
        sent = pickle.loads(pickle.dumps(one))  # as to the process that asked for it
        assert (type(sent), str(sent), vars(sent)) == (type(one), str(one), vars(one))
    assert pickle.loads(pickle.dumps(error)).installed_version == "2"


def test_doctests_of_the_package() -> None:
    for module in (util, __import__("horovod.common.process_sets", fromlist=["x"])):
        result = doctest.testmod(module)
        assert result.failed == 0
        assert result.attempted > 0


def test_split_list_spreads_the_remainder_over_the_first_chunks() -> None:
    assert util.split_list(list(range(10)), 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert util.split_list([1], 3) == [[1], [], []]
    assert util.split_list(l=[1, 2], parts=1) == [[1, 2]]


def test_env_sets_and_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_A", "before")
    monkeypatch.delenv("HVD_TEST_B", raising=False)
    with util.env(HVD_TEST_A=None, HVD_TEST_B="2"):
        assert "HVD_TEST_A" not in os.environ
        assert os.environ["HVD_TEST_B"] == "2"
    assert os.environ["HVD_TEST_A"] == "before"
    assert "HVD_TEST_B" not in os.environ


def test_cache_remembers_per_arguments() -> None:
    calls: list[tuple[Any, ...]] = []

    @util._cache
    def function(a: int, b: int = 0) -> int:
        calls.append((a, b))
        return a + b

    assert [function(1), function(1), function(1, b=2), function(1, b=2)] == [1, 1, 3, 3]
    assert calls == [(1, 0), (1, 2)]


def test_versions_are_compared_by_number() -> None:
    assert util.is_version_greater_equal_than("1.10.0", "1.9.1")
    assert not util.is_version_greater_equal_than("1.9.0", "1.9.1")
    assert util.is_version_greater_equal_than("1.9", "1.9.0")
    for bad in ("1.2", "x"):
        with pytest.raises(ValueError, match=r"x\.y\.z"):
            util.is_version_greater_equal_than("1.2.3", bad)
    with pytest.raises(ValueError, match="strings"):
        util.is_version_greater_equal_than(1, "1.2.3")  # type: ignore[arg-type]


def test_small_predicates() -> None:
    assert util.is_iterable([]) is True
    assert util.is_iterable(3) is False
    assert util.num_rank_is_power_2(0) is False
    assert util.get_ext_suffix().endswith(".so")
    assert util.get_extension_full_path("/a/b/x.py", "c", "lib") == f"/a/b/c/lib{util.get_ext_suffix()}"


def test_installed_version_is_compared_with_the_recorded_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "_PACKAGE", tmp_path)
    util.check_installed_version("pytorch", "2.0")  # nothing recorded
    (tmp_path / "metadata.json").write_text('{"pytorch": "2.0"}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        util.check_installed_version("pytorch", "2.0")
        util.check_installed_version("tensorflow", "9")
    with pytest.warns(UserWarning, match=r"found version 2\.0 at build time"):
        util.check_installed_version("pytorch", "2.1")
    with pytest.raises(HorovodVersionMismatchError):
        util.check_installed_version("pytorch", "2.1", ImportError("symbol"))


def test_the_package_has_horovods_extras() -> None:
    names = "all-frameworks keras mxnet pytorch pytorch-spark ray spark tensorflow tensorflow-cpu tensorflow-gpu"
    assert set(names.split()) <= set(metadata.metadata("horovod-gloo").get_all("Provides-Extra") or ())
    for extra in ("spark", "pytorch-spark"):  # pyspark, pyarrow and torch come without numpy, which estimators need
        assert f'numpy; extra == "{extra}"' in (metadata.requires("horovod-gloo") or ())


def test_the_package_is_built_against_no_framework() -> None:
    """So any version of one is the right one, and no extension is missing (docs/differences.md, row 141)."""
    assert not (Path(util.__file__).parent.parent / "metadata.json").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("pytorch", "tensorflow", "mxnet"):
            util.check_installed_version(name, "0.0.1", ImportError("another reason"))
    for name in util.EXTENSIONS:
        util.check_extension(f"horovod.{name}", "HOROVOD_WITH_SOMETHING", util.__file__, "mpi_lib")
