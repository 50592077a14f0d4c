"""Which tensors the core reads itself, without asking Python. Operations on them are tested on ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

CLASSES = (torch.Tensor, torch.nn.Parameter)
CALL = (core.OP_ALLREDUCE, "allreduce.x", -1, ())
SUM = (core.REDUCE_SUM, 1.0, 1.0, 0)
HAS_TABLE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)


class OwnTensor(torch.Tensor):
    pass


READ: dict[str, Callable[[], torch.Tensor]] = {
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "scalar": lambda: torch.tensor(1.0),
    "empty": lambda: torch.empty(0, 3),
    "rows of a matrix": lambda: torch.ones(4, 3)[1:],
    "one column": lambda: torch.ones(4, 1).t(),
    **{
        str(dtype): lambda dtype=dtype: torch.ones(3, dtype=dtype)
        for dtype in (
            *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
            *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        )
    },
}
NEEDS_A_LOOK: dict[str, Callable[[], Any]] = {
    "no tensor": lambda: [1.0],
    "a subclass": lambda: torch.ones(3).as_subclass(OwnTensor),
    "transposed": lambda: torch.ones(4, 3).t(),
    "expanded": lambda: torch.ones(1).expand(3),
    "negated lazily": lambda: torch._neg_view(torch.ones(3)),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "on no device": lambda: torch.empty(3, device="meta"),
    "bool": lambda: torch.ones(3, dtype=torch.bool),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "uint16": lambda: torch.ones(3).to(torch.uint16),
}


REPEATED = core.RepeatedAllreduce("repeated", (3,), core.DTYPE_FLOAT32, SUM)


def no_stream(gpu: int) -> int:
    raise AssertionError(f"GPU {gpu} was asked for the stream of a tensor in the host's memory")


def test_a_class_without_the_table_has_no_calls() -> None:
    assert core.tensor_calls((int,), no_stream) is None
    assert (core.tensor_calls(CLASSES, no_stream) is not None) == HAS_TABLE


if HAS_TABLE:
    enqueue_tensor, enqueue_group, start_tensor = core.tensor_calls(CLASSES, no_stream)

    def enqueue(tensor: Any, output: Any = None) -> Any:
        return enqueue_tensor(*CALL[:3], tensor, tensor if output is None else output, *SUM, False)

    @pytest.mark.parametrize("make", READ.values(), ids=READ.keys())
    def test_what_is_read_is_submitted(make: Callable[[], torch.Tensor]) -> None:
        """There is no session that would take it."""
        from horovod.torch._tensors import code_of

        with pytest.raises(HorovodInternalError, match="not been initialized"):
            enqueue(make())
        with pytest.raises(HorovodInternalError, match="not been initialized"):
            enqueue_group(CALL, [make()], SUM)
        tensor = make()
        repeated = core.RepeatedAllreduce("r", tuple(tensor.shape), code_of(tensor.dtype), SUM)
        with pytest.raises(HorovodInternalError, match="not been initialized"):
            start_tensor(repeated, tensor)

    @pytest.mark.parametrize("make", NEEDS_A_LOOK.values(), ids=NEEDS_A_LOOK.keys())
    def test_what_needs_a_look_is_left_to_the_caller(make: Callable[[], Any]) -> None:
        assert enqueue(make()) is None
        assert enqueue_group(CALL, [torch.ones(3), make()], SUM) is None
        assert start_tensor(REPEATED, make()) is False

    def test_a_repeated_allreduce_takes_one_type() -> None:
        assert start_tensor(REPEATED, torch.ones(3).double()) is False
        with pytest.raises(HorovodInternalError, match="not been initialized"):
            start_tensor(REPEATED, torch.ones(4, 2))  # another shape is for the ranks to compare

    @pytest.mark.parametrize("output", [torch.ones(4), torch.ones(3).double(), torch.ones(3, 2).t()[0], [1.0]])
    def test_an_output_of_another_form_is_left_to_the_caller(output: Any) -> None:
        assert enqueue(torch.ones(3), output) is None
        with pytest.raises(HorovodInternalError, match="not been initialized"):
            enqueue(torch.ones(3), torch.ones(3))

    def test_wrong_arguments_are_told() -> None:
        with pytest.raises(TypeError, match=r"enqueue_tensor\(\) takes 10 arguments by position, not 2"):
            enqueue_tensor(CALL, torch.ones(3))
        with pytest.raises(TypeError, match=r"start_tensor\(\) takes 2 arguments by position, not 1"):
            start_tensor(REPEATED)
        with pytest.raises(TypeError, match="a tuple of 4 as call"):
            enqueue_group(CALL[:2], [torch.ones(3)], SUM)
        with pytest.raises(TypeError):
            enqueue_tensor("allreduce", *CALL[1:3], torch.ones(3), torch.ones(3), *SUM, False)


def test_only_the_core_makes_handles() -> None:
    with pytest.raises(TypeError, match="Handle"):
        core.Handle()
    with pytest.raises(TypeError, match="expected a Handle, not 1"):
        core.wait_all([1])


def test_a_torch_that_marks_one_tensor_at_a_time(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch did at first: what is no tensor, or one without a version, is a RuntimeError."""
    from horovod.torch import _private, _session

    marked: list[torch.Tensor] = []

    def increment_version(tensor: object) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise RuntimeError("increment_version expect a Tensor as input")
        if tensor.is_inference():
            raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed")
        marked.append(tensor)

    monkeypatch.setattr(torch._C, "_increment_version", increment_version)
    monkeypatch.setattr(_private, "increment_version", increment_version)
    monkeypatch.setattr(_session, "mark_written", _private.version_counter())
    tensors = [torch.ones(3), torch.ones(2)]
    with torch.inference_mode():
        without_version = torch.ones(3)
    fake.hvd.grouped_allreduce_([*tensors, without_version])
    assert [id(tensor) for tensor in marked] == [id(tensor) for tensor in tensors]
