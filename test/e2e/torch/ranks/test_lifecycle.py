"""init, shutdown and topology on every rank."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd
from horovod._common.native import core
from rank_world import comes_true
from training import assert_all_ranks_hold, batch, loss, net, wrap
from world import assert_same, assert_usable


def test_topology_is_that_of_the_environment() -> None:
    assert hvd.rank() == int(os.environ.get("HOROVOD_RANK", "0"))
    assert hvd.size() == int(os.environ.get("HOROVOD_SIZE", "1"))
    assert hvd.local_rank() == int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    assert hvd.local_size() == int(os.environ.get("HOROVOD_LOCAL_SIZE", "1"))
    assert hvd.cross_rank() == int(os.environ.get("HOROVOD_CROSS_RANK", "0"))
    assert hvd.cross_size() == int(os.environ.get("HOROVOD_CROSS_SIZE", "1"))
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(range(hvd.size()))}
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert hvd.global_process_set.included()


def test_init_and_shutdown_again_and_again() -> None:
    """Each second session has process sets from its start."""
    sets = [hvd.ProcessSet([0]), hvd.ProcessSet([1])] if hvd.size() > 1 else []
    for cycle in range(31):
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="init"):
            hvd.rank()
        hvd.shutdown()
        given = sets if cycle % 2 else []
        hvd.init(process_sets=given)
        assert hvd.is_initialized()
        assert_same(hvd.allreduce(torch.tensor([cycle]), op=hvd.Sum), torch.tensor([cycle * hvd.size()]))
        for own in (one for one in given if one.included()):
            assert_same(hvd.allreduce(torch.tensor([cycle]), op=hvd.Sum, process_set=own), torch.tensor([cycle]))


def test_a_second_init_changes_nothing() -> None:
    handle = hvd.allreduce_async(torch.ones(1), name="across", op=hvd.Sum)
    hvd.init()
    assert hvd.synchronize(handle).item() == hvd.size()


def test_threads_that_call_init_at_once_begin_one_session() -> None:
    for _ in range(5):
        hvd.shutdown()
        with ThreadPoolExecutor(2) as threads:
            for begun in [threads.submit(hvd.init) for _ in range(2)]:
                begun.result()
        assert_usable()


def test_operations_outside_a_session_are_internal_errors() -> None:
    hvd.barrier()
    hvd.shutdown()
    for call in (lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.allgather_async(torch.ones(1)), hvd.barrier):
        with pytest.raises(hvd.HorovodInternalError, match="init"):
            call()
    hvd.init()
    assert_usable()


def test_automatic_names_agree_after_a_new_init() -> None:
    for _ in range(hvd.rank()):
        with pytest.raises(NotImplementedError):
            hvd.allreduce_async(torch.empty(1, device="meta"))
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert hvd.synchronize(hvd.allreduce_async(torch.ones(1), op=hvd.Sum)).item() == hvd.size()


@pytest.mark.usefixtures("several_ranks")
def test_a_shutdown_fails_what_others_still_wait_for() -> None:
    """A rank that leaves makes the others' pending operations fail instead of hanging."""
    hvd.barrier()
    if hvd.rank() == 0:
        time.sleep(0.2)
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(1), name="never")
        hvd.shutdown()
    hvd.init()
    assert_usable()


def test_tensors_live_as_long_as_their_operation() -> None:
    handles = []
    for i in range(50):
        handles.append(hvd.allreduce_async(torch.full((1000,), float(i)), name=f"life{i}", op=hvd.Sum))
    gc.collect()
    for i, handle in enumerate(handles):
        assert_same(hvd.synchronize(handle), torch.full((1000,), float(i * hvd.size())))


@pytest.mark.usefixtures("several_ranks")
def test_only_the_core_keeps_an_input_while_its_operation_is_pending() -> None:
    if hvd.rank() > 0:
        hvd.barrier()
    tensor = torch.full((3,), 2.0)
    kept = weakref.ref(tensor)
    handle = hvd.allreduce_async(tensor, name="kept", op=hvd.Sum)
    if hvd.rank() == 0:
        del tensor
        gc.collect()
        assert kept() is not None
        hvd.barrier()
    assert_same(hvd.synchronize(handle), torch.full((3,), 2.0 * hvd.size()))
    tensor = torch.ones(1)
    assert_usable()  # which frees what other threads have dropped
    assert kept() is None


def test_handles_that_are_gone_leave_no_references() -> None:
    def references() -> int:
        gc.collect()
        return sys.getrefcount(core.Handle)

    before = references()
    for i in range(20):
        hvd.allreduce_(torch.ones(1), name=f"gone{i}")
        hvd.grouped_allgather([torch.ones(1), torch.ones(2)], name=f"gone together{i}")  # asks each handle
    assert references() == before


def test_handles_may_be_dropped() -> None:
    for i in range(20):
        hvd.allreduce_async(torch.ones(100), name=f"dropped{i}", op=hvd.Sum)
    hvd.mpi_ops._handle_map.clear()
    gc.collect()
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_waiting_lets_other_python_threads_run(tmp_path: Path) -> None:
    """Rank 0 comes to the barrier when a thread of rank 1 has run, which waits there."""
    ran = Path(hvd.broadcast_object(str(tmp_path / "ran"), root_rank=0))

    def run() -> None:
        while not core.pending_operations():
            time.sleep(0.001)
        time.sleep(0.05)  # until it waits
        ran.touch()

    thread = threading.Thread(target=run)
    if hvd.rank() == 1:
        thread.start()
    has_run = hvd.rank() != 0 or comes_true(ran.exists)
    hvd.barrier()
    if hvd.rank() == 1:
        thread.join()
    assert has_run


def test_operations_from_several_threads() -> None:
    """The main thread trains meanwhile, and changes how many threads torch uses."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(20):
                result = hvd.allreduce(torch.full((4,), float(step)), name=f"thread{number}", op=hvd.Sum)
                assert_same(result, torch.full((4,), float(step * hvd.size())))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(20):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
        torch.set_num_threads(1 + step % 2)
    for thread in threads:
        thread.join()
    assert failures == []
    assert_all_ranks_hold(model)


def test_a_forked_child_does_not_disturb() -> None:
    """Data loader workers are forked after init; their end is not the end of the session (appendix D)."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, num_workers=2)
    assert sum(part.sum().item() for part in loader) == 28.0
    assert_usable()


def numbers() -> tuple[object, ...]:
    return hvd.is_initialized(), hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_size()


def numbers_in_a_child() -> tuple[object, ...]:
    found = numbers()
    with pytest.raises(hvd.HorovodInternalError, match="forked process cannot use the session"):
        hvd.allreduce(torch.ones(1))
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"hvd.init\(\): this process was forked"):
        hvd.init()
    return found


@pytest.mark.usefixtures("several_ranks")
def test_a_forked_child_knows_the_numbers_of_its_rank_and_does_not_take_its_place() -> None:
    """Workers that load data choose seeds and shards by the rank."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(numbers_in_a_child).get(timeout=60) == numbers()
    assert_usable()
