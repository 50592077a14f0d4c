"""Results in memory that torch has given for the shape that was guessed, as on a GPU; here in the host's memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import _session
from horovod.torch._tensors import guessed_result


class OnGpu(torch.Tensor):
    is_cuda = True  # type: ignore[assignment]


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """All that was guessed, which stays alive, so that no other result has its address."""
    made: list[torch.Tensor] = []

    def guess(call: Any, reduction: Any, tensor: torch.Tensor) -> torch.Tensor | None:
        result = guessed_result(call, reduction, tensor.as_subclass(OnGpu))
        made.extend([] if result is None else [result])
        return result

    monkeypatch.setattr(_session, "guessed_result", guess)
    return made


def is_guessed(result: torch.Tensor, guesses: list[torch.Tensor]) -> bool:
    return result.data_ptr() in [guess.data_ptr() for guess in guesses]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool, torch.int64])
@pytest.mark.parametrize("more", [0, 1])
def test_allgathers(dtype: torch.dtype, more: int, guesses: list[torch.Tensor]) -> None:
    """A rank gives `more` rows than the one before it."""
    parts = [torch.full((2 + more * r, 3), r + 1).to(dtype) for r in range(hvd.size())]
    expected, own = torch.cat(parts), parts[hvd.rank()]
    alone = hvd.allgather(own, name="rows")
    later = hvd.synchronize(hvd.allgather_async(own, name="rows"))
    group = hvd.grouped_allgather([own, own], name="both")
    assert len(guesses) == 4
    for result in (alone, later, *group):
        assert type(result) is torch.Tensor
        assert torch.equal(result, expected)
        assert is_guessed(result, guesses) == (len(own) * hvd.size() == len(expected))


def test_reducescatters(guesses: list[torch.Tensor]) -> None:
    """Also of rows that are no multiple of the ranks: each rank knows its own."""
    n, rank = hvd.size(), hvd.rank()
    for rows in (2 * n, 2 * n + 1):
        whole = torch.arange(float(rows))
        mine = torch.arange(float(rows)).split([rows // n + (r < rows % n) for r in range(n)])[rank] * n
        alone = hvd.reducescatter(whole, op=hvd.Sum, name="parts")
        later = hvd.synchronize(hvd.reducescatter_async(whole, op=hvd.Sum, name="parts"))
        group = hvd.grouped_reducescatter([whole, whole], op=hvd.Sum, name="both")
        for result in (alone, later, *group):
            assert torch.equal(result, mine)
            assert is_guessed(result, guesses)


def test_alltoalls(guesses: list[torch.Tensor]) -> None:
    n, rank = hvd.size(), hvd.rank()
    even = hvd.alltoall(torch.full((2 * n,), float(rank)), name="even")
    assert torch.equal(even, torch.arange(float(n)).repeat_interleave(2))
    assert is_guessed(even, guesses)
    own = torch.full((n * (rank + 1),), float(rank))
    result, received = hvd.alltoall(own, splits=[rank + 1] * n, name="uneven")
    assert received.tolist() == [r + 1 for r in range(n)]
    assert torch.equal(result, torch.arange(float(n)).repeat_interleave(received.long()))
    assert is_guessed(result, guesses) == (n * (rank + 1) == sum(range(n + 1)))
    with pytest.raises(ValueError, match="negative"):
        hvd.alltoall(torch.ones(3), splits=[-1] * n, name="wrong")


def test_gradients(guesses: list[torch.Tensor]) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    rows = hvd.allgather(x, name="rows")
    parts = hvd.reducescatter(x.repeat(hvd.size(), 1), op=hvd.Sum, name="parts")
    (rows.sum() + parts.sum()).backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 3), 1.0 + hvd.size() ** 2))
    assert guesses
