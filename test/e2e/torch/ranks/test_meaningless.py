"""Whatever is asked for ends in a result or in an exception, the same on all ranks, never in the end of the process."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod._common.native import core
from world import assert_usable

TYPES = tuple(sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str))
OPS = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product, -1, 6)
FACTORS = ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5), (1e300, -1e300), (math.nan, math.inf))
REFUSED = (ValueError, TypeError, NotImplementedError, RuntimeError)
REDUCTIONS: tuple[Callable[..., Any], ...] = (
    hvd.allreduce_async,
    hvd.allreduce_async_,
    lambda tensor, **options: hvd.grouped_allreduce_async([tensor, tensor.clone()], **options),
    hvd.reducescatter_async,
)


def outcome(run: Callable[[], Any]) -> tuple[Any, str]:
    """What it gives, and the name of its exception."""
    try:
        return run(), ""
    except REFUSED as error:
        return None, type(error).__name__


def tensor_of(dtype: torch.dtype) -> torch.Tensor | None:
    try:
        return torch.zeros(2 * hvd.size(), 3).to(dtype)
    except (RuntimeError, NotImplementedError, TypeError):
        return None  # PyTorch itself makes no such tensor


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_type_reduction_and_factor() -> None:
    """All are in flight together, so that what can be fused is."""
    started = []
    given = [tensor for tensor in map(tensor_of, TYPES) if tensor is not None]
    for tensor in given:
        for op in OPS:
            for before, after in FACTORS:
                for number, reduce in enumerate(REDUCTIONS):
                    options = {"op": op, "prescale_factor": before, "postscale_factor": after}
                    name = f"{number} {tensor.dtype} {options}"
                    started.append(outcome(lambda r=reduce, t=tensor, n=name, o=options: r(t.clone(), name=n, **o)))
    ends = [refused or outcome(lambda h=handle: hvd.synchronize(h))[1] for handle, refused in started]
    assert all(theirs == ends for theirs in hvd.allgather_object(ends))
    assert ends.count("") > len(ends) / 10
    assert "HorovodInternalError" in ends, "reducescatter has Average and Sum only"
    assert_usable()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_type_moves_or_is_refused() -> None:
    ends = []
    for tensor in map(tensor_of, TYPES):
        if tensor is None:
            continue
        ends.append(outcome(lambda t=tensor: hvd.allgather(t, name="x"))[1])
        ends.append(outcome(lambda t=tensor: hvd.broadcast(t, 0, name="x"))[1])
        ends.append(outcome(lambda t=tensor: hvd.alltoall(t, name="x"))[1])
    assert all(theirs == ends for theirs in hvd.allgather_object(ends))
    assert_usable()


def test_a_flag_has_no_factor() -> None:
    """What the core itself says, without the checks of this module."""
    flags = torch.ones(3, dtype=torch.bool)
    for op, before, after, said in (
        (hvd.Max, 2.0, 1.0, "bool tensors cannot be multiplied; expected prescale_factor 1, got 2"),
        (hvd.Max, 1.0, 0.5, "bool tensors cannot be multiplied; expected postscale_factor 1, got 0.5"),
        (hvd.Average, 1.0, 1.0, "bool tensors have no reduction Average"),
    ):
        _, refused = outcome(
            lambda o=op, b=before, a=after: hvd.allreduce(flags, op=o, prescale_factor=b, postscale_factor=a)
        )
        assert refused == "ValueError"
        tensor = (flags.data_ptr(), flags.data_ptr(), (3,), core.DTYPE_BOOL, -1)
        with pytest.raises(ValueError, match=said):
            core.enqueue((core.OP_ALLREDUCE, "flags", -1, ()), tensor, (op, before, after, 0), flags)
    assert_usable()
