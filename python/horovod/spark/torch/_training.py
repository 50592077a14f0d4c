"""The training of a TorchEstimator, on each rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import MethodType
from typing import Any

import numpy as np
import torch

import horovod.torch as hvd
from horovod.spark.common._reader import Batch
from horovod.spark.common._training import Training, gpu_index
from horovod.spark.torch import _objects
from horovod.spark.torch._losses import Loss, moved

Metric = Callable[[torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class TorchTraining:
    """What ranks get. `content` is _objects.packed(); `metrics` has a list for each label."""

    training: Training
    content: bytes
    input_shapes: Any
    label_shapes: Any
    loss: Loss
    metrics: list[list[Metric]]
    minibatch: Callable[..., Any] | None
    checkpoint: bytes | None


def train(told: TorchTraining) -> tuple[list[dict[str, Any]], bytes] | None:
    """On each rank of the job. Rank 0 returns the history and the checkpoint of the model to keep."""
    hvd.init()
    made = _Rank(told).run()
    hvd.shutdown()
    return made


def minibatch(
    model: torch.nn.Module,
    optimizer: Any,
    transform_outputs: Callable[..., Any],
    loss_fn: Callable[..., Any],
    inputs: list[torch.Tensor],
    labels: list[torch.Tensor],
    sample_weights: torch.Tensor | None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """One step of training; a function of the user may stand in its place. It returns the outputs and the loss."""
    optimizer.zero_grad()
    outputs, labels = transform_outputs(model(*inputs), labels)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()
    optimizer.step()
    return outputs, loss


def _step_every(optimizer: Any, passes: int) -> None:
    """Makes it step after each `passes`-th batch, when the gradients of so many have been added up."""
    step, zero_grad = type(optimizer).step, type(optimizer).zero_grad
    done = 0

    def step_at_last(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal done
        done += 1
        return step(self, *args, **kwargs) if done % passes == 0 else None

    def zero_at_first(self: Any, *args: Any, **kwargs: Any) -> None:
        if done % passes == 0:
            zero_grad(self, *args, **kwargs)

    optimizer.step = MethodType(step_at_last, optimizer)
    optimizer.zero_grad = MethodType(zero_at_first, optimizer)


class _Means:
    """Means of the loss and of the metrics over the rows of all ranks."""

    def __init__(self, metrics: list[list[Metric]]) -> None:
        self._metrics = [metric for of_label in metrics for metric in of_label]
        self._labels = [at for at, of_label in enumerate(metrics) for _ in of_label]
        self._sums = np.zeros(2 + len(self._metrics))

    def add(self, outputs: list[torch.Tensor], labels: list[torch.Tensor], loss: torch.Tensor) -> None:
        rows = len(labels[0])
        with torch.no_grad():
            values = [float(m(outputs[at], labels[at])) for m, at in zip(self._metrics, self._labels, strict=True)]
        self._sums += rows * np.array([1.0, float(loss.detach()), *values])

    def of_all_ranks(self, name: str) -> dict[str, Any]:
        """On every rank, at the same point."""
        sums = hvd.allreduce(torch.from_numpy(self._sums), op=hvd.Sum, name=f"estimator.{name}").numpy()
        loss, *values = (sums[1:] / sums[0]).tolist()
        return {"loss": loss, "all_metrics": values}


class _Rank:
    def __init__(self, told: TorchTraining) -> None:
        self.told = told
        training = told.training
        self.device = _device(training)
        if training.random_seed is not None:
            torch.manual_seed(training.random_seed + hvd.rank())
        self.model, self.optimizer = _objects.unpacked(told.content)
        self.best, self.kept = float("inf"), b""
        if told.checkpoint is not None:
            state = _objects.state_of(told.checkpoint)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if state["best"] is not None:
                self.best, self.kept = state["best"], told.checkpoint
        self.kind = _objects.float_type(self.model)
        self.model.to(self.device)
        _move_state(self.optimizer, self.device)
        self.loss = told.loss.made(self.device)
        self.metrics = [list(moved(of_label, self.device)) for of_label in told.metrics]
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * hvd.size()  # a new one: groups may share a tensor
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0, model=self.model)
        passes = training.backward_passes_per_step
        self.distributed = hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=self.model.named_parameters(),
            compression=training.gradient_compression or hvd.Compression.none,
            backward_passes_per_step=passes,
        )
        if passes > 1:
            _step_every(self.distributed, passes)

    def run(self) -> tuple[list[dict[str, Any]], bytes] | None:
        training = self.told.training
        steps = training.steps_of_epoch(whole=True)
        history: list[dict[str, Any]] = []
        with training.make_data(hvd.rank(), steps, training.val_steps or 0) as data:
            batches = iter(data.train_data())
            validation = data.val_data() if data.has_val else None
            for epoch in range(training.epochs):
                made: dict[str, Any] = {"epoch": epoch, "train": self._train(islice(batches, steps), steps)}
                if validation is not None:
                    made["validation"] = self._validate(islice(iter(validation), training.val_steps))
                history.append(made)
                self._keep(made["validation"]["loss"] if validation is not None else None)
                if hvd.rank() == 0:
                    _say(training, made)
        return (history, self.kept) if hvd.rank() == 0 else None

    def _keep(self, loss: float | None) -> None:
        """On rank 0, keeps the states if this epoch is the best so far; without a loss the last one is."""
        if hvd.rank() == 0 and (loss is None or loss < self.best or not self.kept):
            self.best = float("inf") if loss is None else loss
            self.kept = self._checkpoint(loss)

    def _train(self, batches: Iterator[Batch], steps: int) -> dict[str, Any]:
        self.model.train()
        step = self.told.minibatch or minibatch
        means = _Means(self.metrics)
        taken = 0
        for batch in batches:
            inputs, labels, weights = self._tensors(batch)
            outputs, loss = step(
                self.model, self.distributed, self._transform, self.loss, inputs, labels, weights
            )  # fmt: skip
            means.add(*self._transform(outputs, labels), loss)
            taken += 1
        if taken != steps:
            raise RuntimeError(f"the data module has given {taken} batches of an epoch, expected {steps}")
        return means.of_all_ranks("train")

    def _validate(self, batches: Iterable[Batch]) -> dict[str, Any]:
        self.model.eval()
        means = _Means(self.metrics)
        with torch.no_grad():
            for batch in batches:
                inputs, labels, weights = self._tensors(batch)
                outputs, labels = self._transform(self.model(*inputs), labels)
                means.add(outputs, labels, self.loss(outputs, labels, weights))
        return means.of_all_ranks("validation")

    def _tensors(self, batch: Batch) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]:
        training = self.told.training
        features = [batch[name] for name in training.feature_cols]
        whole = [name in training.categorical_cols for name in training.feature_cols]
        inputs = _objects.inputs_of(features, self.told.input_shapes, self.kind, self.device, whole)
        labels = [torch.from_numpy(np.ascontiguousarray(batch[name])).to(self.device) for name in training.label_cols]
        labels = [label.to(self.kind) if label.is_floating_point() else label.long() for label in labels]
        if self.told.label_shapes:
            pairs = zip(labels, self.told.label_shapes, strict=True)
            labels = [_objects.reshaped(label, shape) for label, shape in pairs]
        if training.sample_weight_col is None:
            return inputs, labels, None
        return inputs, labels, torch.from_numpy(batch[training.sample_weight_col]).to(self.device, self.kind)

    def _transform(self, made: Any, labels: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        outputs = _objects.outputs_of(made)
        if len(outputs) != len(labels):
            raise ValueError(f"the model has {len(outputs)} outputs, expected {len(labels)}, one for each label")
        return outputs, _objects.fitted(outputs, labels)

    def _optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state with the learning rates of one rank."""
        state = self.optimizer.state_dict()
        groups = [{**group, "lr": group["lr"] / hvd.size()} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    def _checkpoint(self, loss: float | None) -> bytes:
        """The states with the learning rate of one rank; in the store, too, if it keeps runs."""
        content = _objects.state_bytes(self.model.state_dict(), self._optimizer_state(), loss)
        store = self.told.training.store
        if store.checkpoint_path is not None:
            with store.get_local_output_dir() as folder:
                with open(os.path.join(folder, store.checkpoint_filename), "wb") as file:
                    file.write(content)
                store.sync(folder)
        return content


def _device(training: Training) -> torch.device:
    """This rank's device. RuntimeError: some ranks have a GPU and some have none."""
    use = training.use_gpu and torch.cuda.is_available()
    said = hvd.allgather_object((hvd.rank(), "a GPU" if use else "a CPU"), name="estimator.device")
    if len({device for _, device in said}) > 1:
        raise RuntimeError(f"ranks train on different devices, {dict(said)}; use_gpu=False lets all use CPUs")
    if not use:
        return torch.device("cpu")
    device = torch.device("cuda", gpu_index(hvd.local_rank(), torch.cuda.device_count()))
    torch.cuda.set_device(device)
    return device


def _move_state(optimizer: Any, device: torch.device) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                state[name] = value.to(device)


def _say(training: Training, made: dict[str, Any]) -> None:
    if training.verbose:
        parts = [
            f"{part} loss {made[part]['loss']:.6g}" + "".join(f", {value:.6g}" for value in made[part]["all_metrics"])
            for part in ("train", "validation")
            if part in made
        ]
        print(f"epoch {made['epoch'] + 1}/{training.epochs}: {'; '.join(parts)}", flush=True)
