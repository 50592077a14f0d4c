"""horovod.spark.run() on a real Spark with four cores of this host: results, output, variables."""

from __future__ import annotations

import _thread
import io
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from spark_processes import soon

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark.common.backend import SparkBackend, default_num_proc


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_reduce_with_torch_and_results_come_in_rank_order(spark: SparkContext, ranks: int) -> None:
    def work(base: int, *, factor: int) -> tuple[Any, ...]:
        import torch

        import horovod.torch as hvd

        hvd.init()
        total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
        numbers = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
        hvd.shutdown()
        return numbers, total, base + factor * numbers[0]

    results = horovod.spark.run(work, (10,), {"factor": 3}, num_proc=ranks)
    assert [numbers for numbers, _, _ in results] == [(rank, ranks, rank, ranks, 0, 1) for rank in range(ranks)]
    assert {total for _, total, _ in results} == {ranks * (ranks + 1) / 2}
    assert [value for _, _, value in results] == [10 + 3 * rank for rank in range(ranks)]
    soon(lambda: not list(spark.statusTracker().getActiveJobsIds()), "Spark knows that its job is over")


def test_without_a_number_there_are_as_many_ranks_as_cores(spark: SparkContext) -> None:
    assert horovod.spark.run(lambda: os.environ["HOROVOD_RANK"]) == ["0", "1", "2", "3"]
    assert default_num_proc() == 4
    backend = SparkBackend(num_proc=2, env={"A": "1", "B": "1"})
    assert backend.num_processes() == 2
    os_of_rank = lambda *names: [os.environ.get(name) for name in names]  # noqa: E731
    names = ("A", "B", "CUDA_VISIBLE_DEVICES")
    assert backend.run(os_of_rank, names, env={"B": "2"}) == [["1", "2", None]] * 2


def test_variables_are_those_of_the_executor_and_those_given(spark: SparkContext, tmp_path: Path) -> None:
    def work() -> tuple[Any, ...]:
        from horovod.spark.task import get_available_devices

        names = ("HOME", "OF_THE_DRIVER", "GIVEN", "LANG_OF_TEST", "HOROVOD_SPARK_WORK_DIR")
        host = os.environ["HOROVOD_HOSTNAME"]
        return [os.environ.get(name) for name in names], os.getcwd(), host, sys.path, get_available_devices()

    os.environ["OF_THE_DRIVER"] = "since after the executor's start"
    try:
        env = {"GIVEN": "a=b", "HOME": None, "HOROVOD_SPARK_WORK_DIR": str(tmp_path)}
        env["HOROVOD_SPARK_PYTHONPATH"] = str(tmp_path / "modules")
        variables, folder, host, path, devices = horovod.spark.run(work, num_proc=1, env=env)[0]
    finally:
        del os.environ["OF_THE_DRIVER"]
    assert variables == [None, None, "a=b", None, str(tmp_path)]
    assert folder == str(tmp_path)
    assert re.fullmatch(r"[A-Za-z0-9-]+-[0-9a-f]{32}", host)
    assert str(tmp_path / "modules") in path
    assert devices == []


def test_tls_of_the_ranks_is_of_the_launcher_too(spark: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> tuple[Any, ...]:
        import horovod.torch as hvd

        hvd.init()
        return hvd.size(), os.environ["HOROVOD_TLS"]

    assert horovod.spark.run(work, num_proc=2, env={"HOROVOD_TLS": "1"}, start_timeout=60) == [(2, "1")] * 2
    monkeypatch.setenv("HOROVOD_TLS", "yes")  # of the driver
    assert horovod.spark.run(work, num_proc=2, env={"HOROVOD_TLS": "0"}, start_timeout=60) == [(2, "1")] * 2


def test_files_that_spark_has_brought_are_modules_of_the_ranks(spark: SparkContext, tmp_path: Path) -> None:
    module = tmp_path / "brought_by_spark.py"
    module.write_text("def answer():\n    return 42\n")
    spark.addPyFile(str(module))

    def work() -> Any:
        import brought_by_spark  # type: ignore[import-not-found]

        return brought_by_spark.answer(), brought_by_spark.__file__

    answer, file = horovod.spark.run(work, num_proc=1)[0]
    assert answer == 42
    assert file != str(module)


def test_output_goes_where_the_caller_wants_it(spark: SparkContext, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        print("to output", flush=True)
        print("to error", file=sys.stderr, flush=True)

    out, err = io.StringIO(), io.StringIO()
    horovod.spark.run(work, num_proc=2, stdout=out, stderr=err)
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:to output", "[1]<stdout>:to output"]
    assert sorted(err.getvalue().splitlines()) == ["[0]<stderr>:to error", "[1]<stderr>:to error"]
    assert "<stdout>" not in capfd.readouterr().out
    horovod.spark.run(work, num_proc=1, prefix_output_with_timestamp=True)
    shown = capfd.readouterr()
    assert re.search(r"\d\d:\d\d:\d\d.*\[0\]<stdout>:to output\n", shown.out), shown.out
    assert re.search(r"\d\d:\d\d:\d\d.*\[0\]<stderr>:to error\n", shown.err), shown.err
    horovod.spark.run(work, num_proc=1, verbose=2, nics="lo", executable=sys.executable)
    assert re.search(r"host task-0\.\S+ runs rank 0", capfd.readouterr().err)


def test_large_results_come_and_what_cannot_travel_is_said(spark: SparkContext) -> None:
    size = 20_000_000
    results = horovod.spark.run(lambda: os.environ["HOROVOD_RANK"].encode() * size, num_proc=2)
    assert [(len(result), result[:1], result[-1:]) for result in results] == [(size, b"0", b"0"), (size, b"1", b"1")]
    with pytest.raises(RuntimeError, match=r"raised TypeError: the function's result, of type lock, cannot be pickled"):
        horovod.spark.run(_thread.allocate_lock, num_proc=1)
    lock = _thread.allocate_lock()
    with pytest.raises(TypeError, match=r"horovod\.spark\.run: the function or an argument cannot be pickled"):
        horovod.spark.run(lambda: lock, num_proc=1)


def test_more_ranks_than_cores_are_an_error_that_says_why(spark: SparkContext) -> None:
    wanted = (
        r"after 8 s \(start_timeout\) 4 of 5 Spark tasks have called in: "
        r"Spark runs \d, and has spark\.default\.parallelism 4\. All 5 must run at the same time"
    )
    with pytest.raises(TimeoutException, match=wanted):
        horovod.spark.run(lambda: 1, num_proc=5, start_timeout=8)
    assert horovod.spark.run(lambda: 1, num_proc=4) == [1] * 4


def test_the_token_is_in_no_argument_and_in_nothing_that_spark_shows(
    spark: SparkContext, event_logs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token = secrets.token_hex(32)
    used = []
    monkeypatch.setattr(secrets, "token_hex", lambda size: used.append(size) or token)

    def places(token: str, private: str) -> list[str]:
        files = [file for part in ("cmdline", "environ") for file in Path("/proc").glob(f"[0-9]*/{part}")]
        found = []
        for file in files:
            try:
                content = file.read_bytes()
            except OSError:
                continue
            if token.encode() in content or (private.encode() in content and file.name == "cmdline"):
                found.append(str(file))
        return found

    private = "of the user " + secrets.token_urlsafe(8)
    found = horovod.spark.run(places, (token, private), num_proc=2, env={"PRIVATE": private}, verbose=2)
    assert used == [32], "the token that is searched for is that of the job"
    assert found == [[], []]
    texts = [repr(spark.getConf().getAll()), *capfd.readouterr()]
    logs = [log.read_text() for log in event_logs.rglob("*") if log.is_file()]
    assert any("ranks of Horovod" in log for log in logs)
    for text in texts + logs:
        assert token not in text
        assert private not in text


def test_a_job_needs_a_context_without_speculation(spark: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    spark._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ValueError, match=r"spark\.speculation=true lets Spark start a second task"):
            horovod.spark.run(lambda: 1, num_proc=1)
    finally:
        spark._conf.set("spark.speculation", "false")
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    for call in (lambda: horovod.spark.run(lambda: 1, num_proc=1), default_num_proc):
        with pytest.raises(Exception, match="there is no active SparkContext"):
            call()


def test_bad_arguments_are_named(spark: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, kind, message in (
        ({"num_proc": 0}, ValueError, "num_proc=0, expected a whole number from 1 on"),
        ({"num_proc": 2.0}, ValueError, r"num_proc=2\.0, expected a whole number"),
        ({"start_timeout": 0.0}, ValueError, r"start_timeout=0\.0, expected a number of seconds above 0"),
        ({"start_timeout": float("inf")}, ValueError, "start_timeout=inf, expected"),
        ({"start_timeout": float("nan")}, ValueError, "start_timeout=nan, expected"),
        ({"start_timeout": "60"}, ValueError, "start_timeout='60', expected"),
        ({"use_mpi": True}, ValueError, "use_mpi=True, but this build has no MPI"),
        ({"env": {"A": 1}}, TypeError, "env has A=1, expected a text"),
        ({"env": {"A=B": "1"}}, ValueError, "env has 'A=B', expected the name"),
        ({"stdout": "log.txt"}, TypeError, "stdout='log.txt', expected a text file"),
    ):
        with pytest.raises(kind, match=message):
            horovod.spark.run(lambda: 1, **arguments)
    with pytest.raises(TypeError, match="func is 5, expected a function"):
        horovod.spark.run(5)
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="HOROVOD_SPARK_START_TIMEOUT=soon: expected a whole number of seconds"):
        horovod.spark.run(lambda: 1)
