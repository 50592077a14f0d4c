"""What ranks disagree on is an error of the same words on all of them, which names the tensor; the session goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import horovod.torch as hvd
from world import FAILURES, assert_usable

SUM, ADASUM = {"op": hvd.Sum}, {"op": hvd.Adasum}
EVEN = torch.ones(4, 6)
# What even ranks give, and odd ones: a tensor, and arguments beside the name.
CASES: dict[str, dict[str, tuple[Any, Any]]] = {
    "allreduce": {
        "first dim": ((EVEN, SUM), (torch.ones(5, 6), SUM)),
        "transposed": ((EVEN, SUM), (torch.ones(6, 4), SUM)),
        "dims": ((EVEN, SUM), (torch.ones(24), SUM)),
        "dtype": ((EVEN.int(), SUM), (EVEN.double(), SUM)),
        "op": ((EVEN, SUM), (EVEN, {"op": hvd.Max})),
        "average": ((EVEN, SUM), (EVEN, {"op": hvd.Average})),
        "prescale": ((EVEN, {**SUM, "prescale_factor": 3.0}), (EVEN, {**SUM, "prescale_factor": 2.0})),
        "postscale": ((EVEN, {**SUM, "postscale_factor": 3.0}), (EVEN, {**SUM, "postscale_factor": 2.0})),
        "shape of Adasum": ((torch.ones(4), ADASUM), (torch.ones(5), ADASUM)),
        "dtype of Adasum": ((torch.ones(4), ADASUM), (torch.ones(4).double(), ADASUM)),
        "Adasum or not": ((torch.ones(4), ADASUM), (torch.ones(4), SUM)),
        "factor of Adasum": ((torch.ones(4), ADASUM), (torch.ones(4), {**ADASUM, "prescale_factor": 2.0})),
    },
    "reducescatter": {
        "rows": ((EVEN, {}), (torch.ones(5, 6), {})),
        "transposed": ((EVEN, {}), (torch.ones(6, 4), {})),
        "dtype": ((EVEN, {}), (EVEN.int(), {})),
        "factor": ((EVEN, {}), (EVEN, {"prescale_factor": 2.0})),
        "op": ((EVEN, {"op": hvd.Average}), (EVEN, SUM)),
    },
    "allgather": {
        "other dim": ((torch.ones(3, 4), {}), (torch.ones(3, 5), {})),
        "dims": ((torch.ones(3, 4), {}), (torch.ones(12), {})),
        "dtype": ((torch.ones(3), {}), (torch.ones(3).int(), {})),
    },
    "alltoall": {
        "other dim": ((torch.ones(12, 4), {}), (torch.ones(12, 5), {})),
        "dims": ((torch.ones(12, 4), {}), (torch.ones(12), {})),
        "dtype": ((torch.ones(12), {}), (torch.ones(12).int(), {})),
    },
    "broadcast": {
        "shape": ((torch.ones(4), {"root_rank": 0}), (torch.ones(5), {"root_rank": 0})),
        "dtype": ((torch.ones(4), {"root_rank": 0}), (torch.ones(4).long(), {"root_rank": 0})),
        "root": ((torch.ones(4), {"root_rank": 0}), (torch.ones(4), {"root_rank": 1})),
    },
}


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize(("operation", "case"), [(operation, case) for operation in CASES for case in CASES[operation]])
def test_all_get_the_same_error(operation: str, case: str) -> None:
    tensor, arguments = CASES[operation][case][hvd.rank() % 2]
    for _ in range(2):
        with pytest.raises(FAILURES, match=f"{operation}.{case}") as caught:
            getattr(hvd, operation)(tensor, name=case, **arguments)
        assert len(set(hvd.allgather_object(str(caught.value)))) == 1
    assert_usable()
