"""Batch normalisation with the statistics of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from horovod.torch._private import _BatchNorm
from horovod.torch.mpi_ops import Sum, allgather, allreduce_, size

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Normalises over the batches of all ranks: like BatchNorm on the concatenated batches.

    Arguments as for torch.nn.BatchNorm2d: `num_features` channels, `eps`, `momentum`, `affine`, `track_running_stats`.

    Input: `(batch, channels, ...)` with 2 or more dimensions, on the CPU or a CUDA GPU; the ranks' batches may differ
    in length. In training mode, or without running statistics, all ranks have to call forward and backward together;
    in eval mode, and with one rank, it is an ordinary BatchNorm. The gradients of weight and bias are this rank's;
    DistributedOptimizer averages them like all others. ValueError for other shapes, and for a single value per channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: expected an input of 2 or more dimensions, got {input.dim()}")
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm: expected {self.num_features} channels in dimension 1, got shape {list(input.shape)}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The normalised `input`, of its shape and type. Errors as for allgather()."""
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, unbiased_variance = _Normalise.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps
        )
        if self.training and self.track_running_stats:
            self._update_running_statistics(mean, unbiased_variance)
        result: torch.Tensor = output
        return result

    @torch.no_grad()
    def _update_running_statistics(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        share = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if share is None:  # the mean over all batches
                share = 1.0 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            if running is not None:
                running.mul_(1 - (share or 0.0)).add_(new.to(running), alpha=share or 0.0)


def _all_but_channels(tensor: torch.Tensor) -> list[int]:
    return [0, *range(2, tensor.dim())]


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One value for each channel, in a shape that broadcasts over `like`."""
    return values.view(1, -1, *([1] * (like.dim() - 2)))


def _for_sums(tensor: torch.Tensor) -> torch.Tensor:
    """In a type whose sums of many elements are exact enough."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _own_statistics(input: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Count, mean and biased variance of each channel; a rank without data contributes zeros."""
    channels = input.shape[1]
    count = input.numel() / channels if channels else 0
    if count == 0:
        zeros = torch.zeros(channels, dtype=torch.float64, device=input.device)
        return 0.0, zeros, zeros
    variance, mean = torch.var_mean(_for_sums(input), _all_but_channels(input), correction=0)
    return count, mean.double(), variance.double()


def _statistics_of_all(input: torch.Tensor, eps: float) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Count, mean and biased variance over the batches of all ranks, in float64."""
    count, mean, variance = _own_statistics(input)
    own = torch.cat([mean.new_tensor([count]), mean, torch.rsqrt(variance + eps)]).unsqueeze(0)
    gathered = allgather(own, "sync_batch_norm.statistics")
    counts = gathered[:, :1]
    means, inverses = gathered[:, 1:].chunk(2, dim=1)
    total = float(counts.sum())
    if total <= 1:
        raise ValueError(
            f"SyncBatchNorm: expected more than 1 value per channel over all ranks when training, got {int(total)}"
        )
    mean = (counts * means).sum(0) / total
    variances = inverses.pow(-2) - eps
    variance = (counts * (variances + (means - mean).square())).sum(0) / total
    return total, mean, variance.clamp_(min=0.0)


class _Normalise(torch.autograd.Function):
    """(input, weight, bias, eps) -> output, mean, unbiased variance. Only the output is differentiable.

    Gradient of the input: that of the concatenated batch. Gradients of weight and bias: of this rank's batch alone.
    """

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> Any:
        total, mean, variance = _statistics_of_all(input, eps)
        statistics = _for_sums(input).dtype
        # All of one type, which the input's need not be: also in a module of 16 bits.
        wide_weight, wide_bias = (None if own is None else own.to(statistics) for own in (weight, bias))
        output = functional.batch_norm(
            input, mean.to(statistics), variance.to(statistics), wide_weight, wide_bias, training=False, eps=eps
        )
        ctx.save_for_backward(input, weight, mean, torch.rsqrt(variance + eps))
        ctx.total = total
        unbiased = variance * (total / (total - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return output, mean, unbiased

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        input, weight, mean, inverse = ctx.saved_tensors
        grad_wide, dims = _for_sums(grad), _all_but_channels(input)
        from_mean = _for_sums(input) - _per_channel(mean.to(grad_wide.dtype), input)
        sum_dy = grad_wide.sum(dims)
        sum_dy_xmu = (grad_wide * from_mean).sum(dims)
        grad_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.stack([sum_dy.double(), sum_dy_xmu.double()])
            all_dy, all_dy_xmu = allreduce_(sums, name="sync_batch_norm.gradients", op=Sum)
            slope = (all_dy_xmu / ctx.total * inverse.square()).to(grad_wide.dtype)
            scale = (inverse if weight is None else inverse * weight).to(grad_wide.dtype)
            grad_input = from_mean.mul_(-_per_channel(slope, input)).add_(grad_wide)
            grad_input.sub_(_per_channel((all_dy / ctx.total).to(grad_wide.dtype), input))
            grad_input = grad_input.mul_(_per_channel(scale, input)).to(input.dtype)
        grad_weight = (sum_dy_xmu * inverse).to(weight.dtype) if ctx.needs_input_grad[1] else None
        grad_bias = sum_dy.to(grad.dtype if weight is None else weight.dtype) if ctx.needs_input_grad[2] else None
        return grad_input, grad_weight, grad_bias, None
