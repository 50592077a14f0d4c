"""Where gradients are averaged: by the collective, or by the factor that the optimizer applies to them anyway."""

from __future__ import annotations

from dataclasses import dataclass

from horovod._common.calls import set_id
from horovod._common.native import core
from horovod._common.session import basics
from horovod.common.process_sets import ProcessSet

__all__ = ["Averaging", "averaging_for"]

_NCCL_THAT_AVERAGES = 21000


@dataclass(frozen=True)
class Averaging:
    """How gradients are reduced over the ranks of a set, and what the optimizer's rescale_grad is multiplied by."""

    op: int
    prescale: float
    postscale: float
    rescale: float
    is_needed: bool  # False: this rank is alone, or no member


def averaging_for(gradient_predivide_factor: float, process_set: ProcessSet, caller: str) -> Averaging:
    """As Horovod does it: with NCCL 2.10 or later by the collective, else by rescale_grad, which programs can see."""
    factor = float(gradient_predivide_factor)
    if not factor > 0:
        raise ValueError(f"hvd.{caller}: gradient_predivide_factor must be positive, got {gradient_predivide_factor!r}")
    basics.size()  # ValueError before init()
    set_id(process_set, f"hvd.{caller}")
    ranks = process_set.size() or 1
    if not process_set.included() or ranks == 1:
        return Averaging(core.REDUCE_SUM, 1.0, 1.0, 1.0, is_needed=False)
    if basics.rocm_built() or int(basics.nccl_built()) < _NCCL_THAT_AVERAGES:
        return Averaging(core.REDUCE_SUM, 1.0 / factor, 1.0, factor / ranks, is_needed=True)
    return Averaging(core.REDUCE_AVERAGE, 1.0 / factor, factor, 1.0, is_needed=True)
