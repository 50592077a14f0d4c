"""An optimizer that reduces gradients over all ranks before another one uses them."""

from __future__ import annotations

from typing import Any

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.mxnet._averaging import averaging_for
from horovod.mxnet._library import mx
from horovod.mxnet.mpi_ops import allreduce_, grouped_allreduce_

__all__ = ["DistributedOptimizer", "check_num_groups"]

_OWN = ("_optimizer", "_averaging", "_num_groups", "_process_set")


def check_num_groups(num_groups: Any, caller: str) -> int:
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 0:
        raise ValueError(f"hvd.{caller}: num_groups must be a number from 0, got {num_groups!r}")
    return num_groups


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """Behaves as `optimizer`, but update() and update_multi_precision() first average the gradients over all ranks.

    Arguments, the same on all ranks:
        optimizer: a mxnet.optimizer.Optimizer, for Module.fit() or an Updater. Gluon has DistributedTrainer.
        gradient_predivide_factor: `f`: gradients are multiplied by `1/f` before they are summed, and by `f/N` after.
        num_groups: where update() gets lists, so many groups of gradients are each reduced together; 0: each gradient
            by itself.
        process_set: the ranks that take part; on others gradients stay their own.

    Where no NCCL from 2.10 on is found, `rescale_grad` of the optimizer is multiplied by `f/N` here, once, and the
    gradients are summed. Attributes are those of `optimizer`, read and set. ValueError: wrong arguments, or Horovod is
    not initialised. A failure is mxnet.MXNetError where the weights are waited for.

    >>> optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.01 * hvd.size()))
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(
                f"hvd.DistributedOptimizer: expected a mxnet.optimizer.Optimizer, got {type(optimizer).__name__}"
            )
        self._optimizer = optimizer
        self._num_groups = check_num_groups(num_groups, "DistributedOptimizer")
        self._process_set = process_set
        self._averaging = averaging_for(gradient_predivide_factor, process_set, "DistributedOptimizer")
        optimizer.rescale_grad *= self._averaging.rescale

    # Module and Trainer set attributes too (rescale_grad, param_dict): they are the inner optimizer's.

    def __getattr__(self, item: str) -> Any:
        if item in _OWN:  # not there yet: while it is unpickled or copied
            raise AttributeError(item)
        return getattr(self._optimizer, item)

    def __setattr__(self, item: str, value: Any) -> None:
        if item in _OWN:
            object.__setattr__(self, item, value)
        else:
            setattr(self._optimizer, item, value)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _reduce(self, index: Any, grad: Any) -> None:
        how = self._averaging
        if not how.is_needed:
            return
        options: dict[str, Any] = {
            "op": how.op,
            "prescale_factor": how.prescale,
            "postscale_factor": how.postscale,
            "process_set": self._process_set,
        }
        if not isinstance(index, (tuple, list)):
            allreduce_(grad, name=str(index), **options)
        elif self._num_groups > 0:
            groups = zip(split_list(index, self._num_groups), split_list(grad, self._num_groups), strict=True)
            for position, (numbers, grads) in enumerate(groups):
                if numbers:
                    name = f"{numbers[0]}:{numbers[-1]}"
                    grouped_allreduce_(grads, name=name, priority=-position, **options)
        else:
            for position, (number, one) in enumerate(zip(index, grad, strict=True)):
                allreduce_(one, name=str(number), priority=-position, **options)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduces `grad`, or all of a list, in place, and updates `weight` with the wrapped optimizer."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As update(), for weights of which the optimizer keeps copies of a higher precision."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    # What the base class defines too, and the wrapped optimizer may define otherwise.

    @property
    def learning_rate(self) -> float:
        """The wrapped optimizer's learning rate."""
        return float(self._optimizer.learning_rate)

    def create_state(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's state for one weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's state for one weight, with a copy of a higher precision where that needs it."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the wrapped optimizer's learning rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Sets the wrapped optimizer's factors of the learning rate, by index or name of the weight."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Sets the wrapped optimizer's factors of the weight decay, by index or name of the weight."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _set_current_context(self, device_id: int) -> None:
        self._optimizer._set_current_context(device_id)

    def _update_count(self, index: Any) -> None:
        self._optimizer._update_count(index)
