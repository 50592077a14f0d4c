"""Helpers that tests and integrations import. Importing this module does not load the native core."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from horovod import _env
from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

EXTENSIONS = ("torch", "tensorflow", "mxnet")
_PACKAGE = Path(__file__).resolve().parent.parent
_ASK_TIMEOUT_S = 120

T = TypeVar("T")
P = ParamSpec("P")


def _cache(function: Callable[P, T]) -> Callable[P, T]:
    """Remembers the result for each distinct list of arguments."""
    results: dict[Any, T] = {}

    @functools.wraps(function)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(sorted(kwargs.items())))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return cached


# Extensions: which framework modules can be imported here


def get_ext_suffix() -> str:
    """The suffix of extension modules, `.cpython-311-x86_64-linux-gnu.so` for example."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """The path of a native library: the folder of the file `pkg_path`, then `args`, then the platform's suffix."""
    folder = os.path.dirname(os.path.abspath(pkg_path))
    return os.path.join(folder, *args[:-1], args[-1] + get_ext_suffix())


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """ImportError, which names the extension `ext_name`, unless the native core was built.

    One core serves all frameworks: `ext_env_var`, `pkg_path` and `args` are accepted and not used.
    """
    del ext_env_var, pkg_path, args
    if importlib.util.find_spec("horovod._core") is None:
        raise ImportError(
            f"Extension {ext_name} has not been built: horovod._core is missing from {_PACKAGE}. "
            "Reinstall horovod-gloo with `pip install .` and look for build errors."
        )


def _ask_in_new_process(program: str, verbose: bool) -> str | None:
    """The last line that `program` prints in a new process, so that this one imports no framework; None if it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        if verbose:
            print(f"no answer within {_ASK_TIMEOUT_S} s from: {program}", file=sys.stderr)
        return None
    if done.returncode != 0:
        if verbose:
            print(done.stderr, file=sys.stderr)
        return None
    lines = done.stdout.splitlines()
    return lines[-1] if lines else ""


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether horovod.<`ext_base_name`> can be imported and finds the native core. Tried in a process of its own.

    `verbose`: print on stderr why not. Remembers its answer, as do the other questions here.
    """
    program = f"import horovod.{ext_base_name} as hvd; hvd.init; print(hvd.gloo_built())"
    return _ask_in_new_process(program, verbose) is not None


def _ask_extension(question: str, verbose: bool) -> str | None:
    for name in EXTENSIONS:
        answer = _ask_in_new_process(f"import horovod.{name} as hvd; print(hvd.{question})", verbose)
        if answer is not None:
            return answer
    return None


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework `ext_base_name`, "torch", "tensorflow" or "mxnet", sees a GPU. `verbose`: print errors."""
    programs = {
        "torch": "import torch; print(torch.cuda.is_available())",
        "tensorflow": "import tensorflow as tf; print(bool(tf.config.list_physical_devices('GPU')))",
        "mxnet": "import mxnet; print(mxnet.context.num_gpus() > 0)",
    }
    program = programs.get(ext_base_name)
    return program is not None and _ask_in_new_process(program, verbose) == "True"


@_cache
def mpi_built(verbose: bool = False) -> bool:
    """Whether the build has MPI: never. `verbose`: print on stderr why an extension cannot be imported."""
    return _ask_extension("mpi_built()", verbose) == "True"


@_cache
def gloo_built(verbose: bool = False) -> bool:
    """Whether the build has Gloo. `verbose`: print on stderr why an extension cannot be imported."""
    return _ask_extension("gloo_built()", verbose) == "True"


@_cache
def nccl_built(verbose: bool = False) -> bool:
    """Whether a process finds an NCCL. `verbose`: print on stderr why an extension cannot be imported."""
    return _ask_extension("nccl_built()", verbose) not in (None, "0", "False")


@_cache
def ddl_built(verbose: bool = False) -> bool:
    """Whether the build has DDL: never. `verbose`: print on stderr why an extension cannot be imported."""
    return _ask_extension("ddl_built()", verbose) == "True"


@_cache
def ccl_built(verbose: bool = False) -> bool:
    """Whether the build has oneCCL: never. `verbose`: print on stderr why an extension cannot be imported."""
    return _ask_extension("ccl_built()", verbose) == "True"


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Compares the installed `version` of the framework `name` with the one that metadata.json records, if it does.

    Warns of a difference. HorovodVersionMismatchError instead, if an import has failed with `exception`.
    """
    try:
        recorded = json.loads((_PACKAGE / "metadata.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    built_with = recorded.get(name)
    if built_with is None or built_with == version:
        return
    if exception is not None:
        raise HorovodVersionMismatchError(name, built_with, version) from exception
    warnings.warn(get_version_mismatch_message(name, built_with, version), stacklevel=2)


# Other helpers


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables within a `with` block: name=value. None removes one."""
    before = {name: _env.get(name) for name in kwargs}
    try:
        _env.apply(kwargs)
        yield
    finally:
        _env.apply(before)


def split_list(l: Sequence[T], parts: int) -> list[list[T]]:  # noqa: E741 (Horovod's name)
    """Cuts the sequence `l` into `parts` lists of equal length; the first ones get the remainder, one each.

    >>> split_list([1, 2, 3, 4, 5], 2)
    [[1, 2, 3], [4, 5]]
    """
    base, longer = divmod(len(l), parts)
    chunks: list[list[T]] = []
    begin = 0
    for index in range(parts):
        end = begin + base + (1 if index < longer else 0)
        chunks.append(list(l[begin:end]))
        begin = end
    return chunks


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number `num_rank` is a power of two: 1, 2, 4, 8, ...

    >>> [n for n in range(9) if num_rank_is_power_2(n)]
    [1, 2, 4, 8]
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(value: object) -> bool:
    """Whether a `for` loop can run over `value`."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _version_numbers(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:3]]
    return (*numbers, 0, 0, 0)[:3]


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version `ver` is at least `target`. ValueError unless both are strings and `target` has the form x.y.z.

    >>> is_version_greater_equal_than("2.13.0+cpu", "2.2.1")
    True
    """
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings, got {ver!r} and {target!r}")
    if not re.fullmatch(r"\d+\.\d+\.\d+\S*", target):
        raise ValueError(f"expected a version of the form x.y.z, got {target!r}")
    return _version_numbers(ver) >= _version_numbers(target)


class _ReduceOps(Protocol):
    Average: int
    Sum: int


def get_average_backwards_compatibility_fun(basics: _ReduceOps) -> Callable[[int | None, bool | None], int]:
    """Makes the function (op, average) -> op of a module whose reductions are `basics.Average` and `basics.Sum`."""
    mean, total = basics.Average, basics.Sum

    def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
        """The reduction that `op`, or `average`, its deprecated form, asks for; Average if both are None.

        Warns of `average`. ValueError if both are given.
        """
        if average is None:
            return mean if op is None else op
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn(
            "Parameter `average` has been replaced with `op`: use hvd.Average or hvd.Sum.",
            DeprecationWarning,
            stacklevel=3,
        )
        return mean if average else total

    return handle_average_backwards_compatibility


__all__ = [
    "check_extension",
    "check_installed_version",
    "ccl_built",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "get_extension_full_path",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]
