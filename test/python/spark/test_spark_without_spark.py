"""horovod.spark where there is no Spark to ask: settings, the words of horovodrun, addresses, what is not there."""

from __future__ import annotations

import importlib
import io
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from documented import undocumented


def test_without_pyspark_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("horovod.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"horovod\.spark needs pyspark, which is not installed here: `pip install"):
        importlib.import_module("horovod.spark")


def test_settings_are_pairs_of_spark_and_their_values() -> None:
    conf = importlib.import_module("horovod.spark.conf")
    pairs = {name: pair for name, pair in vars(conf).items() if name.startswith("SPARK_CONF_")}
    defaults = pairs.pop("SPARK_CONF_DEFAULT_VALUES")
    assert len(pairs) == 17
    assert {key for key, _ in pairs.values()} == set(defaults)
    assert pairs["SPARK_CONF_ALWAYS_RESTART_FAILED_TASK"] == ("spark.task.maxFailures", "2147483647")
    assert pairs["SPARK_CONF_BLACKLIST_ENABLED"] == ("spark.blacklist.enabled", "true")
    assert pairs["SPARK_CONF_BLACKLIST_DISABLED"] == ("spark.blacklist.enabled", "false")
    for name, (key, value) in pairs.items():
        if "BLACKLIST" in name:
            continue
        if "DONT_REUSE" in name:
            assert value == "1", name
        elif "ONCE" in name:
            assert value == "2", name
        else:
            assert value == ("2147483646" if key.endswith("PerNode") else "2147483647"), name


def test_words_of_the_launcher_are_kept_until_the_job_begins() -> None:
    module = importlib.import_module("horovod.spark._launcher_words")
    ports: list[int] = []
    shown = io.StringIO()
    words = module.LauncherWords(shown, ports.append, shows_all=False)
    for piece in ("horovod", "run: waits for 2 hosts at [::1]:47", "11\nhorovodrun: 1 of 2 hosts have joined (a)\n"):
        words.write(piece)
    assert (ports, shown.getvalue()) == ([4711], "")
    words.write("horovodrun: no such interface\n")
    assert words.last == "no such interface"
    words.write("[0]<stderr>: loss")
    words.write(" 0.5\nhorovodrun: the job failed: rank 1 on host task-1.n (pid 7) exited with code 3 first\n")
    assert words.failed_rank == "rank 1 on host task-1.n (pid 7)"
    assert shown.getvalue().startswith("horovodrun: no such interface\n[0]<stderr>: loss 0.5\nhorovodrun: the job")
    assert words.come is None

    late = module.LauncherWords(shown, ports.append, shows_all=True)
    late.write(
        "horovodrun: after 3 s (--start-timeout) 1 of 2 hosts have joined (a); 2 connections did not have the token, "
        "the last from 10.0.0.1; each calls `horovodrun --join x`\n"
    )
    assert (late.come, late.last) == (1, "2 connections did not have the token, the last from 10.0.0.1")


def test_lines_of_others_do_not_end_the_search_for_the_port() -> None:
    module = importlib.import_module("horovod.spark._launcher_words")
    preload = "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded: ignored.\n"
    warning = "a warning\n  of two lines, "  # that does not end its last
    waits, come = "horovodrun: waits for 2 hosts at 10.0.0.1:4711\n", "horovodrun: 1 of 2 hosts have joined (a)\n"
    failed = "horovodrun: the job failed: rank 0 on host task-0.n (pid 7) exited with code 3 first\n"
    text = preload + warning + waits + come + preload + come + "[0]<stderr>:bye\n" + failed
    for size in (1, 7, len(text)):  # a rank's line and what follows it come in one write, too
        ports: list[int] = []
        shown = io.StringIO()
        words = module.LauncherWords(shown, ports.append, shows_all=False)
        for start in range(0, len(text), size):
            words.write(text[start : start + size])
        assert ports == [4711]
        assert words.failed_rank == "rank 0 on host task-0.n (pid 7)"
        assert shown.getvalue() == preload + warning + waits + preload + "[0]<stderr>:bye\n" + failed
    words.write("50 %")  # of a rank: shown before it ends
    assert shown.getvalue().endswith("50 %")


def test_arguments_of_older_scripts_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    run = importlib.import_module("horovod.spark._run")
    jobs: list[Any] = []
    monkeypatch.setattr(run, "run_spark_job", lambda job, payload: jobs.append(job))
    two = type("int64", (), {"__index__": lambda self: 2})()  # as of NumPy
    run.run(len, num_proc=two, start_timeout=60.5, verbose=None)
    assert (jobs[0].num_proc, jobs[0].start_timeout_s, jobs[0].verbose) == (2, 61, 0)
    with pytest.warns(UserWarning, match="extra_mpi_args='-x A' is ignored: there is no MPI"):
        run.run(len, extra_mpi_args="-x A")
    assert len(jobs) == 2
    with pytest.warns(DeprecationWarning, match="run_elastic: min_np is deprecated, use min_num_proc"):
        run.run_elastic(len, num_proc=two, min_np=1, nics="eth0,eth1", reset_limit=0)
    assert (jobs[2].caller, jobs[2].num_proc, jobs[2].nics) == ("horovod.spark.run_elastic", 2, ("eth0", "eth1"))
    assert (jobs[2].elastic.min_num_proc, jobs[2].elastic.max_num_proc, jobs[2].elastic.reset_limit) == (1, None, 0)
    assert jobs[1].elastic is None


class Plain:
    """A context and a launcher, with what SparkTasks asks of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name) or self

    def wait(self, timeout: float) -> int:
        self.calls.append("wait")
        return 1


def test_tasks_that_are_cancelled_do_not_begin_and_an_error_of_ours_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("horovod.spark._spark_tasks")
    monkeypatch.setattr(module, "InheritableThread", threading.Thread)
    context = Plain()
    tasks = module.SparkTasks(context, "group", 2, lambda port: None)
    tasks.cancel()
    with tasks:
        tasks.begin(4711)
    assert set(context.calls) == {"cancelJobGroup"}

    def broken(port: int) -> Any:
        raise SystemExit("broken")

    launcher = Plain()
    tasks = module.SparkTasks(Plain(), "group", 2, broken)
    tasks.watch(launcher)
    with tasks:
        tasks.begin(4711)
    assert isinstance(tasks.error, SystemExit)
    assert launcher.calls == ["wait"]


def test_the_driver_listens_where_executors_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    address_for_tasks = importlib.import_module("horovod.spark._driver").address_for_tasks
    assert address_for_tasks("127.0.0.1") == ("127.0.0.1", "127.0.0.1")
    assert address_for_tasks("localhost") in [("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]")]
    assert address_for_tasks("192.0.2.77") == ("0.0.0.0", "192.0.2.77")  # not of this host: a forwarded port, say

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ValueError, match=r"spark\.driver\.host=nowhere is not known on this host"):
        address_for_tasks("nowhere")


def test_a_node_is_a_host_or_a_container_on_it() -> None:
    node_name = importlib.import_module("horovod.spark._task").node_name
    assert node_name(None) == node_name("") != node_name("container_1") == node_name("container_1")


def test_places_of_modules_are_those_of_the_task_wherever_its_rank_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task = importlib.import_module("horovod.spark._task")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(task, "_files_of_spark", lambda: [".", "./x.zip"])  # as on executors
    monkeypatch.setattr(task, "_devices_of_task", list)
    own = {"HOROVOD_SPARK_PYTHONPATH": "mine::/a", "PYTHONPATH": "", "HOROVOD_SPARK_WORK_DIR": "/"}
    path = task.rank_environment(own, {})["PYTHONPATH"]
    assert path == f"{tmp_path}/mine:/a:{tmp_path}:{tmp_path}/x.zip"


def test_help_answers_for_every_public_name() -> None:
    names = ("horovod.spark", "horovod.spark.task", "horovod.spark.common.backend", "horovod.spark.common.store")
    assert undocumented(*map(importlib.import_module, names)) == []
