"""Session functions, process sets, helpers and the module's shape."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod

TOP_LEVEL = """
Adasum Average Compression DistributedOptimizer HorovodInternalError Max Min ProcessSet Product Sum SyncBatchNorm
add_process_set allgather allgather_async allgather_object allreduce allreduce_ allreduce_async allreduce_async_
alltoall alltoall_async barrier broadcast broadcast_ broadcast_async broadcast_async_ broadcast_object
broadcast_optimizer_state broadcast_parameters ccl_built cross_rank cross_size cuda_built ddl_built elastic
global_process_set gloo_built gloo_enabled grouped_allgather grouped_allgather_async grouped_allreduce
grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_ grouped_reducescatter grouped_reducescatter_async
init is_initialized join join_and_broadcast local_rank local_size mpi_built mpi_enabled mpi_threads_supported nccl_built poll
rank
reducescatter reducescatter_async remove_process_set rocm_built shutdown size sparse_allreduce_async start_timeline
stop_timeline synchronize
""".split()


def test_the_package_exports_version_and_run_only() -> None:
    assert sorted(horovod.__all__) == ["__version__", "run"]
    assert horovod.__version__ == "0.29.0"
    program = "import horovod; print([name for name in dir(horovod) if not name.startswith('_')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['run']\n"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"hosts": "a", "hostfile": "b"}, ValueError, "either hosts or hostfile"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "either use_gloo or use_mpi"),
        ({"use_mpi": True}, ValueError, "use_mpi=True, but this build has no MPI"),
        ({"use_mpi": True, "mpi_args": "--tcp"}, ValueError, "use_mpi=True, but this build has no MPI"),
        ({"max_num_proc": 2}, ValueError, "max_num_proc=2 is for elastic jobs alone"),
        ({"min_num_proc": 1, "cooldown_range": (1, 2, 3)}, ValueError, r"cooldown_range=\(1, 2, 3\), expected"),
        ({"func": 3}, TypeError, "func is 3, expected a function"),
        ({"func": threading.Lock().acquire}, TypeError, "the function or an argument cannot be pickled: cannot pickle"),
        ({"num_proc": 0}, ValueError, "num_proc=0, expected a number of processes: a whole number from 1 on"),
        ({"num_proc": "2"}, ValueError, "num_proc='2', expected"),
        ({"num_proc": 2.0}, ValueError, r"num_proc=2\.0, expected"),
        ({"num_proc": True}, ValueError, "num_proc=True, expected"),
        ({"min_num_proc": -1}, ValueError, "min_num_proc=-1, expected"),
    ],
)
def test_run_refuses_what_it_cannot_do(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        horovod.run(**{"func": print, **arguments})


def test_run_goes_on_without_mpis_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("horovod._run.run_function_job", lambda argv, *_: started.append(argv))
    with pytest.warns(UserWarning, match="mpi_args='--tcp' is ignored: there is no MPI") as caught:
        horovod.run(print, mpi_args="--tcp")
    assert caught[0].filename == __file__
    assert started == [["--num-proc", "1"]]


def test_old_names_of_runs_arguments_warn() -> None:
    with (
        pytest.warns(DeprecationWarning, match="max_np is called max_num_proc"),
        pytest.raises(ValueError, match="max_num_proc=2"),
    ):
        horovod.run(print, max_np=2)


def test_the_torch_module_has_every_name_of_the_contract(fake: Any) -> None:
    assert set(TOP_LEVEL) <= set(fake.hvd.__all__)
    for name in TOP_LEVEL:
        assert hasattr(fake.hvd, name), name
    assert fake.hvd.is_homogeneous() is fake.hvd.mpi_ops.is_homogeneous() is True
    assert not torch.nn.Module.__module__.startswith("horovod")


def test_topology_functions_need_init(fake_uninitialized: Any) -> None:
    hvd = fake_uninitialized.hvd
    assert hvd.is_initialized() is False
    hvd.shutdown()
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        with pytest.raises(ValueError, match="init"):
            getattr(hvd, name)()
    for name in ("start_timeline", "stop_timeline"):
        with pytest.raises(ValueError, match="init"):
            getattr(hvd, name)(*(["t.json"] if name == "start_timeline" else []))


def test_broadcasts_of_objects_fail_as_operations_without_init(fake_uninitialized: Any) -> None:
    hvd = fake_uninitialized.hvd
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    for call in (lambda: hvd.broadcast_object(1), lambda: hvd.broadcast_optimizer_state(optimizer, 0)):
        with pytest.raises(hvd.HorovodInternalError, match="init"):
            call()


def test_build_information(fake: Any) -> None:
    hvd = fake.hvd
    assert hvd.gloo_built() is True
    assert hvd.gloo_enabled() is True
    assert hvd.nccl_built() == 0
    assert hvd.cuda_built() is True
    for name in ("mpi_built", "mpi_enabled", "ddl_built", "ccl_built", "rocm_built"):
        assert getattr(hvd, name)() is False, name
    with pytest.raises(ValueError, match="no MPI"):
        hvd.mpi_threads_supported()


def test_start_timeline_needs_the_variable(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_TIMELINE", raising=False)
    with pytest.raises(ValueError, match=r"HOROVOD_TIMELINE is not set; set it to DYNAMIC"):
        fake.hvd.start_timeline("t.json")
    fake.hvd.stop_timeline()
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    fake.hvd.start_timeline(Path("t.json"), mark_cycles=True)
    assert fake.core.timeline == ("t.json", True)
    fake.hvd.stop_timeline()
    assert fake.core.timeline is None


def test_init_refuses_communicators_and_bad_ranks(fake_uninitialized: Any) -> None:
    hvd = fake_uninitialized.hvd
    with pytest.raises(ValueError, match="needs MPI"):
        hvd.init(comm=object())
    with pytest.raises(ValueError, match="found 'a' of type str"):
        hvd.init(comm=["a"])
    assert not hvd.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.init(comm=[0])
        hvd.init([])
    with pytest.warns(UserWarning, match="sub-communicators are not built yet"):
        hvd.init(comm=[1, 2])
    hvd.shutdown()


def test_all_modules_hear_of_a_session_also_when_one_of_them_fails(fake_uninitialized: Any) -> None:
    hvd, basics = fake_uninitialized.hvd, fake_uninitialized.hvd.mpi_ops._basics
    heard: list[str] = []

    def fail(*_: bool) -> None:
        raise OSError("the first one's")

    basics._add_hooks(fail, fail)
    basics._add_hooks(lambda started: heard.append(f"init {started}"), lambda: heard.append("shutdown"))
    with pytest.raises(OSError, match="the first"):
        hvd.init()
    assert heard == ["init True"]
    assert basics._init_pid == os.getpid()
    assert hvd.global_process_set.size() == 1
    with pytest.raises(OSError, match="the first"):
        basics._shutdown_at_exit()
    atexit.unregister(basics._shutdown_at_exit)
    assert heard == ["init True", "shutdown"]
    assert not hvd.is_initialized()


def test_init_takes_process_sets_or_dynamic(fake_uninitialized: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hvd = fake_uninitialized.hvd
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "")
    with pytest.raises(ValueError, match="'static'"):
        hvd.init(process_sets="static")
    assert not hvd.is_initialized()
    hvd.init(process_sets="Dynamic")
    assert os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] == "1"
    hvd.shutdown()


def test_process_sets(fake_pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hvd = fake_pair.hvd
    monkeypatch.delenv("HOROVOD_DYNAMIC_PROCESS_SETS", raising=False)
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.ranks, everyone.size(), everyone.rank()) == (0, [0, 1], 2, 0)
    assert everyone.included() is True
    assert str(everyone) == "ProcessSet(process_set_id=0, ranks=[0, 1], mpi_comm=None)"
    some = hvd.ProcessSet([1, 0, 1])
    assert (some.ranks, some.size(), some.rank(), some.process_set_id) == ([0, 1, 1], None, None, None)
    assert hvd.ProcessSet([1]).included() is False
    with pytest.raises(ValueError, match=r"found 1\.5 of type float"):
        hvd.ProcessSet([1.5])
    with pytest.raises(ValueError, match="needs MPI"):
        hvd.ProcessSet(3)
    some.process_set_id = 77
    with pytest.raises(ValueError, match="process set 77 does not exist"):
        some.size()
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set([0])
    assert hvd.remove_process_set(everyone) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1]}


def test_a_child_process_does_not_end_the_session_of_its_parent(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    basics = fake.hvd.mpi_ops._basics
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    basics._shutdown_at_exit()
    assert fake.hvd.is_initialized()
    monkeypatch.undo()
    basics._shutdown_at_exit()
    assert not fake.hvd.is_initialized()


@pytest.mark.parametrize("later", ["shutdown", "init"])
def test_who_comes_later_waits_for_the_thread_that_ends_the_session(fake: Any, later: str) -> None:
    hvd = fake.hvd
    began, came_later = threading.Event(), threading.Event()
    overtaken: list[bool] = []

    def end() -> None:
        if not began.is_set():
            began.set()
            overtaken.append(came_later.wait(0.3))

    hvd.mpi_ops._basics._add_hooks(lambda started: None, end)
    thread = threading.Thread(target=hvd.shutdown)
    thread.start()
    assert began.wait(10)
    getattr(hvd, later)()
    came_later.set()
    thread.join(10)
    assert overtaken == [False]


def test_without_the_core_the_module_imports_with_a_warning() -> None:
    program = (
        "import sys, warnings; sys.modules['horovod._core'] = None\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import horovod.torch as hvd\n"
        "assert any('without its native core' in str(w.message) for w in caught), caught\n"
        "assert not hasattr(hvd, 'init') and hvd.HorovodInternalError\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "horovod._core" in done.stderr


def test_importing_the_package_loads_no_framework() -> None:
    program = "import horovod, horovod.common.util, sys; assert 'torch' not in sys.modules; print(horovod.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "0.29.0", done.stderr
