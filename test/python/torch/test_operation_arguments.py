"""Which arguments the torch functions refuse, and what they make of the others."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

OPERATIONS = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "allgather",
    "allgather_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_allgather",
    "grouped_allgather_async",
]


def call(hvd: Any, operation: str, tensor: Any, **arguments: Any) -> Any:
    function = getattr(hvd, operation)
    if operation.startswith("broadcast"):
        return function(tensor, 0, **arguments)
    return function([tensor] if operation.startswith("grouped") else tensor, **arguments)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tensors_on_other_devices_are_told_what_is_not_built_yet(fake: Any, operation: str) -> None:
    with pytest.raises(NotImplementedError, match=r"device 'meta'.*not built yet"):
        call(fake.hvd, operation, torch.empty(2, device="meta"))
    assert fake.core.calls == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tensors_with_gaps_are_refused(fake: Any, operation: str) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        call(fake.hvd, operation, torch.ones(3, 4).t())
    assert fake.core.calls == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_types_than_those_of_the_wire_are_refused(fake: Any, operation: str) -> None:
    with pytest.raises(ValueError, match=r"tensor type torch.complex64 is not supported"):
        call(fake.hvd, operation, torch.ones(2, dtype=torch.complex64))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_no_dense_tensor_is_refused(fake: Any, operation: str) -> None:
    with pytest.raises(ValueError, match=r"expected a torch\.Tensor, got ndarray; pass torch\.from_numpy\(value\)"):
        call(fake.hvd, operation, torch.ones(2).numpy())
    with pytest.raises(ValueError, match=r"expected a torch\.Tensor, got float; pass torch\.tensor\(value\)"):
        call(fake.hvd, operation, 3.5)
    with pytest.raises(ValueError, match=r"expected a dense tensor.*; pass tensor\.to_dense\(\)") as refused:
        call(fake.hvd, operation, torch.ones(2).to_sparse())
    assert ("sparse_allreduce_async" in str(refused.value)) == operation.startswith("allreduce")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if "allreduce" in one])
def test_what_is_no_reduction_is_told_those_that_are(fake: Any, operation: str) -> None:
    names = r"expected one of hvd\.Average, hvd\.Sum, hvd\.Adasum, hvd\.Min, hvd\.Max, hvd\.Product"
    with pytest.raises(TypeError, match=rf"allreduce: op='sum', {names}"):
        call(fake.hvd, operation, torch.ones(2), op="sum")
    with pytest.raises(ValueError, match=rf"allreduce: op=9, {names}"):
        call(fake.hvd, operation, torch.ones(2), op=9)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_set_without_id_is_refused(fake: Any, operation: str) -> None:
    with pytest.raises(ValueError, match="not registered"):
        call(fake.hvd, operation, torch.ones(2), process_set=fake.hvd.ProcessSet([0]))


def test_bool_is_reduced_by_min_and_max_only(fake: Any) -> None:
    hvd, flags = fake.hvd, torch.tensor([True, False])
    assert torch.equal(hvd.allreduce(flags, op=hvd.Min), flags)
    assert torch.equal(hvd.allreduce(flags, op=hvd.Max), flags)
    for op in (hvd.Sum, hvd.Average, hvd.Product):
        with pytest.raises(ValueError, match="bool"):
            hvd.allreduce(flags, op=op)


def test_members_of_a_group_must_share_a_device(fake: Any) -> None:
    hvd = fake.hvd
    mixed = [torch.ones(1), torch.ones(1, device="meta")]
    with pytest.raises(hvd.HorovodInternalError, match="one device, found cpu, meta"):
        hvd.grouped_allreduce(mixed)
    with pytest.raises(hvd.HorovodInternalError, match="one device, found cpu, meta"):
        hvd.grouped_allgather(mixed)


def test_an_empty_group_is_an_empty_result(fake: Any) -> None:
    hvd = fake.hvd
    assert hvd.grouped_allreduce([]) == []
    assert hvd.synchronize(hvd.grouped_allgather_async([])) == []
    assert fake.core.calls == []


def test_average_is_the_default_and_the_old_argument_warns(fake: Any) -> None:
    hvd, x = fake.hvd, torch.ones(1)
    hvd.allreduce(x)
    hvd.allreduce(x, op=hvd.Sum)
    with pytest.warns(DeprecationWarning, match="average"):
        hvd.allreduce(x, average=True)
    with pytest.warns(DeprecationWarning, match="average"):
        hvd.grouped_allreduce([x], average=False)
    assert [c.reduce_op for c in fake.core.calls] == [hvd.Average, hvd.Sum, hvd.Average, hvd.Sum]
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(x, average=True, op=hvd.Sum)


def test_factors_reach_the_core_unchanged(fake: Any) -> None:
    hvd, x = fake.hvd, torch.ones(1)
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.25, postscale_factor=3.0)
    assert (fake.core.calls[0].prescale, fake.core.calls[0].postscale) == (0.25, 3.0)


def test_the_numbers_of_reductions_are_those_of_the_contract(fake: Any) -> None:
    hvd = fake.hvd
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == [0, 1, 2, 3, 4, 5]


def test_compression_halves_what_is_sent_and_keeps_the_type(fake: Any) -> None:
    hvd, x = fake.hvd, torch.tensor([1.0, 2.5], dtype=torch.float64)
    for compression, wire_type in ((hvd.Compression.fp16, "DTYPE_FLOAT16"), (hvd.Compression.bf16, "DTYPE_BFLOAT16")):
        fake.core.calls.clear()
        out = hvd.allreduce(x, compression=compression)
        assert out.dtype == torch.float64
        assert torch.equal(out, x)
        assert fake.core.calls[0].dtype == getattr(sys.modules["horovod._core"], wire_type)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_fp16_compression_returns_every_float_type(fake: Any, dtype: torch.dtype) -> None:
    fp16 = fake.hvd.Compression.fp16
    x = torch.tensor([0.5, -3.0], dtype=dtype)
    sent, ctx = fp16.compress(x)
    assert sent.dtype == torch.float16
    assert fp16.decompress(sent, ctx).dtype == dtype
    assert torch.equal(fp16.decompress(sent, ctx), x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_fp16_compression_leaves_integers_alone(fake: Any, dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    for compressor in (fake.hvd.Compression.fp16, fake.hvd.Compression.none):
        sent, ctx = compressor.compress(x)
        assert sent is x
        assert compressor.decompress(sent, ctx) is x


def test_sparse_allreduce_needs_a_sparse_tensor_and_names_its_parts(fake: Any) -> None:
    hvd = fake.hvd
    with pytest.raises(ValueError, match="expected a sparse COO tensor"):
        hvd.sparse_allreduce_async(torch.ones(1), name="s", op=hvd.Sum)
    sparse = torch.sparse_coo_tensor([[0, 2]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (4, 2), check_invariants=True)
    finish = hvd.sparse_allreduce_async(sparse, name="s", op=hvd.Average)
    assert fake.core.names == ["allgather.s.indices", "allgather.s.values"]
    assert fake.core.calls[0].shape == (2, 1)
    assert torch.equal(finish().to_dense(), sparse.to_dense())
