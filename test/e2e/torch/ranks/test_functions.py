"""Broadcast of parameters, broadcast and allgather of objects."""

from __future__ import annotations

import builtins
from typing import Any

import cloudpickle
import pytest
import torch

import horovod.torch as hvd
from horovod._common import objects
from horovod.torch._allgather import gather_with_rows
from world import assert_same, assert_usable, small_model

# Parameters


@pytest.mark.parametrize("form", ["state_dict", "named list", "list"])
def test_parameters_of_the_root_win(form: str) -> None:
    for root in range(hvd.size()):
        model, expected = small_model(hvd.rank()), small_model(root)
        if form == "state_dict":
            hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        elif form == "named list":
            hvd.broadcast_parameters(list(model.named_parameters()), root_rank=root)
        else:
            hvd.broadcast_parameters(list(model.parameters()), root_rank=root)
        for own, wanted in zip(model.parameters(), expected.parameters(), strict=True):
            assert_same(own.detach(), wanted.detach())


def test_parameters_with_other_strides_are_broadcast() -> None:
    weight = torch.full((4, 3, 2, 2), float(hvd.rank())).to(memory_format=torch.channels_last)
    weight += torch.arange(48.0).view(4, 3, 2, 2)
    hvd.broadcast_parameters({"weight": weight}, root_rank=hvd.size() - 1)
    assert torch.equal(weight, torch.arange(48.0).view(4, 3, 2, 2) + hvd.size() - 1)
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_no_broadcast_is_left_behind_where_a_tensor_is_refused() -> None:
    named = [("first", torch.full((3,), float(hvd.rank()))), ("second", torch.ones(1, dtype=torch.complex64))]
    for _ in range(2):
        with pytest.raises(ValueError, match="complex64 is not supported"):
            hvd.broadcast_parameters(named, root_rank=0)
        assert torch.equal(named[0][1], torch.zeros(3))


def test_other_containers_are_refused() -> None:
    model = small_model(0)
    for bad in (model.named_parameters(), model.parameters(), {1, 2}, torch.ones(1)):
        with pytest.raises(ValueError, match="expected a dict, a list of tensors"):
            hvd.broadcast_parameters(bad, root_rank=0)
    with pytest.raises(ValueError, match="'a' is a int, not a tensor"):
        hvd.broadcast_parameters({"a": 1}, root_rank=0)
    assert_usable()


# Objects


def test_objects_are_broadcast_and_the_root_keeps_its_own() -> None:
    for root in range(hvd.size()):
        mine = {"rank": hvd.rank(), "values": (1, 2.5, "drei"), "function": lambda x: x + 1}
        got = hvd.broadcast_object(mine, root_rank=root, name="object")
        assert got["rank"] == root
        assert got["function"](1) == 2
        assert (got is mine) == (hvd.rank() == root)


def test_only_the_root_needs_an_object() -> None:
    got = hvd.broadcast_object([1, {2: "x"}] if hvd.rank() == 0 else None)
    assert got == [1, {2: "x"}]


def test_large_objects() -> None:
    text = "x" * 3_000_000
    assert hvd.broadcast_object(text if hvd.rank() == 0 else "") == text


def test_objects_are_gathered_in_rank_order() -> None:
    own = {"rank": hvd.rank(), "pad": "y" * (1000 * hvd.rank())}
    got = hvd.allgather_object(own)
    assert got == [{"rank": rank, "pad": "y" * (1000 * rank)} for rank in range(hvd.size())]
    mixed: list[Any] = [None, 1, "two"]
    assert hvd.allgather_object(mixed[hvd.rank() % 3], name="mixed") == [mixed[r % 3] for r in range(hvd.size())]


# What is unpickled has a seal


class Trap:
    """Sets a mark in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import builtins; builtins.hvd_trapped = True",))


def send_as_object(payload: bytes, name: str) -> None:
    """What rank 0's broadcast_object(name=name) sends, with other bytes: as somebody on the path would change them."""
    hvd.broadcast(torch.tensor([len(payload)]), 0, name=f"{name}.sz")
    hvd.broadcast(torch.tensor(list(payload), dtype=torch.uint8), 0, name=f"{name}.t")


@pytest.mark.usefixtures("several_ranks")
def test_an_object_whose_seal_is_wrong_is_not_unpickled() -> None:
    trap = cloudpickle.dumps(Trap())
    purpose = objects.purpose("broadcast_object", "sealed", 0)
    if hvd.rank() == 0:
        good = bytes(objects.dump("good", purpose))
        elsewhere = bytes(objects.dump(Trap(), objects.purpose("broadcast_object", "other", 0)))
        changed = bytearray(objects.dump(Trap(), purpose))
        changed[5] ^= 1
        for payload in (trap, b"", trap + good[-40:], elsewhere, bytes(changed), good, good):
            send_as_object(payload, "sealed")
    else:
        for _ in range(5):
            with pytest.raises(hvd.HorovodInternalError, match=r"from rank 0 .*seal"):
                hvd.broadcast_object(None, 0, "sealed")
        assert hvd.broadcast_object(None, 0, "sealed") == "good"
        with pytest.raises(hvd.HorovodInternalError, match="from rank 0 is a repetition of an earlier message"):
            hvd.broadcast_object(None, 0, "sealed")
    assert not hasattr(builtins, "hvd_trapped")
    # One bad part of an allgather is enough.
    if hvd.rank() == 1:
        gather_with_rows(torch.frombuffer(bytearray(trap), dtype=torch.uint8), "all.t", hvd.global_process_set)
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"from rank 1 .*seal"):
            hvd.allgather_object("mine", name="all")
    assert not hasattr(builtins, "hvd_trapped")
    assert_usable()
