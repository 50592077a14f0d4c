"""A plain module of PyTorch with its optimizer and loss as a LightningModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.spark.torch._losses import Loss
from horovod.spark.torch._objects import fitted, outputs_of


def to_lightning_module(
    lightning: Any,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    metrics: Sequence[Sequence[Any]],
    feature_cols: Sequence[str],
    label_cols: Sequence[str],
    sample_weight_col: str | None,
) -> Any:
    """A module of the package `lightning` that trains `model` on batches by column. It logs `train_loss`, `val_loss`
    and, of the validation, `val_<name of the metric>_<label>`."""

    class Plain(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self._loss = loss.made()
            functions = (*self._loss.losses, *(metric for of_label in metrics for metric in of_label))
            # Modules among them follow the model to its device.
            self.beside = torch.nn.ModuleList(f for f in functions if isinstance(f, torch.nn.Module))

        def forward(self, *inputs: torch.Tensor) -> Any:
            return self.model(*inputs)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

        def _outputs_and_labels(self, batch: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            outputs = outputs_of(self.model(*[batch[name] for name in feature_cols]))
            return outputs, fitted(outputs, [batch[name] for name in label_cols])

        def _loss_of(self, outputs: Any, labels: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            weights = None if sample_weight_col is None else batch[sample_weight_col].to(outputs[0].dtype)
            return self._loss(outputs, labels, weights)

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            outputs, labels = self._outputs_and_labels(batch)
            value = self._loss_of(outputs, labels, batch)
            self.log("train_loss", value.detach(), on_step=False, on_epoch=True, sync_dist=True)
            return value

        def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
            outputs, labels = self._outputs_and_labels(batch)
            self.log("val_loss", self._loss_of(outputs, labels, batch), batch_size=len(labels[0]), sync_dist=True)
            for label, output, of_label, name in zip(labels, outputs, metrics, label_cols, strict=True):
                for number, metric in enumerate(of_label):
                    said = getattr(metric, "__name__", f"metric{number}").strip("<>")
                    value = torch.as_tensor(metric(output, label), dtype=torch.float32)
                    self.log(f"val_{said}_{name}", value, batch_size=len(label), sync_dist=True)

    return Plain()
