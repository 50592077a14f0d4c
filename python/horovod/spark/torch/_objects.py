"""A model and its optimizer as bytes, and as they arrive where they are needed."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import torch

from horovod.spark.common._prediction import LazyPredictor

Shapes = Sequence[Sequence[int]] | None


def packed(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> bytes:
    """Both in one pickle, so that the optimizer's parameters are those of the model where it is read, too.

    ValueError: the optimizer has parameters that the model does not have.
    """
    if optimizer is not None:
        known = {id(parameter) for parameter in model.parameters()}
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        strange = [tuple(parameter.shape) for parameter in held if id(parameter) not in known]
        if strange:
            raise ValueError(
                f"the optimizer has {len(strange)} parameters that the model does not have (shapes {strange[:3]}), "
                "expected one that was made of model.parameters()"
            )
    content: bytes = cloudpickle.dumps((model, optimizer))
    return content


def unpacked(content: bytes) -> tuple[Any, Any]:
    """The model and the optimizer of packed()."""
    model, optimizer = cloudpickle.loads(content)
    return model, optimizer


def state_bytes(model: dict[str, Any], optimizer: dict[str, Any], best: float | None = None) -> bytes:
    """A checkpoint: the states of both, and the least loss of a validation so far."""
    buffer = io.BytesIO()
    torch.save({"model": _plain(model), "optimizer": _plain(optimizer), "best": best}, buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """The same without numbers of numpy, which are more than what state_of() reads."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value.item() if isinstance(value, np.generic) else value


def check_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """ValueError: a checkpoint of these cannot be read again."""
    try:
        state_of(state_bytes(model.state_dict(), optimizer.state_dict()))
    except Exception as error:
        raise ValueError(f"the state of model or optimizer has more than tensors and plain values: {error}") from error


def state_of(content: bytes) -> dict[str, Any]:
    """The checkpoint that state_bytes() has made. Nothing but tensors and plain values is read from it."""
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def float_type(model: torch.nn.Module) -> torch.dtype:
    """The type of the model's parameters; float32 if it has none that are floating."""
    return next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)


def inputs_of(
    arrays: Sequence[np.ndarray],
    shapes: Shapes,
    kind: torch.dtype,
    device: Any = "cpu",
    whole: Sequence[bool] | None = None,
) -> list[torch.Tensor]:
    """The model's inputs: of type `kind`, but int64 where `whole` says so, in the shapes that are given.

    ValueError: An array has other elements than its shape; the shape is named.
    """
    tensors = []
    for at, array in enumerate(arrays):
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        tensor = tensor.to(device, torch.int64 if whole and whole[at] else kind)
        tensors.append(tensor if shapes is None else reshaped(tensor, shapes[at]))
    return tensors


def reshaped(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The rows of `tensor` in `shape`, whose first number is for the batch."""
    one = math.prod(shape[1:]) if shape and shape[0] == -1 else None
    if one is not None and tensor[0].numel() != one:
        raise ValueError(f"a row has {tensor[0].numel()} elements, expected {one} for the shape {list(shape)}")
    return tensor.reshape(*shape)


def outputs_of(made: Any) -> list[torch.Tensor]:
    """The model's outputs as a list. ValueError: they are no tensors, such as a dictionary."""
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    strange = [type(output).__name__ for output in outputs if not isinstance(output, torch.Tensor)]
    if strange:
        raise ValueError(f"the model returns a {strange[0]}, expected a tensor or a tuple of tensors")
    return outputs


def fitted(outputs: list[torch.Tensor], labels: list[torch.Tensor]) -> list[torch.Tensor]:
    """The labels; one with as many elements as its output in the output's shape and type."""
    return [
        label.reshape(output.shape).to(output.dtype) if output.numel() == label.numel() else label
        for output, label in zip(outputs, labels, strict=True)
    ]


@dataclass
class TorchPredictor(LazyPredictor):
    """Predictions of a module. `content` is packed(); `whole` says which features keep their integer type."""

    content: bytes
    shapes: Shapes
    whole: tuple[bool, ...] | None = None

    def load(self) -> Any:
        return unpacked(self.content)[0].to("cpu").eval()

    def predict(self, model: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            made = model(*inputs_of(arrays, self.shapes, float_type(model), whole=self.whole))
        return [output.double().numpy() for output in outputs_of(made)]
