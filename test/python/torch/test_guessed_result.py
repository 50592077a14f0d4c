"""What memory is given to the core for results on a GPU whose shapes it will know. test/gpu uses it on one."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch


@pytest.fixture(autouse=True)
def sets_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")


class OnGpu(torch.Tensor):
    """On a GPU, it says; what is made for it lies in the host's memory."""

    is_cuda = True  # type: ignore[assignment]


def guess(fake: Any, kind: str, rows: int | None, process_set: Any = None, splits: tuple[int, ...] = ()) -> Any:
    from horovod._common.calls import Call, no_reduction
    from horovod._common.native import core
    from horovod.torch._tensors import guessed_result

    tensor = torch.ones(() if rows is None else (rows, 3), dtype=torch.float16).as_subclass(OnGpu)
    call = Call(getattr(core, f"OP_{kind}"), kind.lower(), splits=splits)
    result = guessed_result(call, no_reduction(process_set or fake.hvd.global_process_set), tensor)
    assert result is None or (type(result), result.dtype) == (torch.Tensor, torch.float16)
    return None if result is None else tuple(result.shape)


def test_all_ranks_are_expected_to_give_as_many_rows(fake_pair: Any) -> None:
    assert guess(fake_pair, "ALLGATHER", 5) == (10, 3)
    assert guess(fake_pair, "REDUCESCATTER", 5) == (3, 3)
    assert guess(fake_pair, "REDUCESCATTER", 4) == (2, 3)
    assert guess(fake_pair, "ALLTOALL", 4) == (4, 3)
    assert guess(fake_pair, "ALLTOALL", 4, splits=(1, 2)) == (3, 3)
    alone = fake_pair.hvd.add_process_set([0])
    assert guess(fake_pair, "ALLGATHER", 5, alone) == (5, 3)
    assert guess(fake_pair, "REDUCESCATTER", 5, alone) == (5, 3)


def test_nothing_is_guessed_where_there_is_nothing_or_something_is_wrong(fake_pair: Any) -> None:
    assert guess(fake_pair, "ALLGATHER", None) is None
    assert guess(fake_pair, "ALLGATHER", 0) is None
    others = fake_pair.hvd.add_process_set([1])
    assert guess(fake_pair, "ALLGATHER", 5, others) is None
    for splits in ((-1, -1), (1, -1), (5, 1), (1 << 62, 1 << 62)):
        assert guess(fake_pair, "ALLTOALL", 5, splits=splits) is None
    with mock.patch("horovod.torch._tensors._LARGEST_GUESS", 59):  # bytes
        assert guess(fake_pair, "ALLGATHER", 5) is None
        assert guess(fake_pair, "REDUCESCATTER", 50) == (25, 3)
    with mock.patch.object(torch, "empty", side_effect=torch.cuda.OutOfMemoryError("full")):
        assert guess(fake_pair, "ALLGATHER", 5) is None
    fake_pair.hvd.shutdown()
    assert guess(fake_pair, "ALLGATHER", 5) is None
    fake_pair.hvd.init()


def test_a_result_is_allocated_once_where_the_core_does_not_read_the_tensor(fake_pair: Any) -> None:
    with mock.patch.object(torch, "empty_like", wraps=torch.empty_like) as made:
        fake_pair.hvd.allreduce(torch.ones(3), op=fake_pair.hvd.Sum, name="x")
    assert made.call_count == 1


def test_the_core_gets_the_guess_with_its_shape(fake_pair: Any) -> None:
    from horovod._common.calls import Call, no_reduction
    from horovod._common.native import core
    from horovod.torch import _session

    tensor = torch.ones(2, 3).as_subclass(OnGpu)
    call, reduction = Call(core.OP_ALLGATHER, "allgather"), no_reduction(fake_pair.hvd.global_process_set)
    with mock.patch.object(_session, "place_of", return_value=-1):
        (data, output, shape, *_), result = _session._described(call, reduction, tensor, None)
    assert (data, tuple(shape)) == (tensor.data_ptr(), (2, 3))
    assert result is not None
    assert output == (result.data_ptr(), (4, 3))
