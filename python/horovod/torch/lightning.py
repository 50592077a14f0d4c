"""HorovodStrategy: Lightning's Trainer on the ranks of Horovod.

    from horovod.torch.lightning import HorovodStrategy
    Trainer(strategy=HorovodStrategy(), accelerator="auto", devices=1)

For pytorch_lightning and lightning.pytorch, 2.0 or newer: of the two, import yours first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

import horovod.torch as hvd
from horovod.torch._distributed_optimizer import _DistributedOptimizer
from horovod.torch._gradients import GradientReducer
from horovod.torch._lightning import (
    HorovodEnvironment,
    all_gather,
    are_several,
    check_devices,
    check_options,
    hand_over,
    mend_logging,
    names_of,
    rank_zero_only,
    reduce,
    share_metrics,
    strategies,
)
from horovod.torch.compression import Compression, Compressor

__all__ = ["HorovodStrategy"]


class HorovodStrategy(strategies.ParallelStrategy):  # type: ignore[misc]
    """Trains on all ranks of Horovod: each has the whole model and its own share of each batch.

    Calls hvd.init() if nobody has. Optimizers that configure_optimizers() returns become DistributedOptimizers, whose
    gradients are reduced when backward() returns: before on_after_backward(), clipping and the step. While Lightning
    accumulates gradients (accumulate_grad_batches, toggle_model(sync_grad=False)) nothing is sent.

    Arguments, the same on all ranks:
        compression, op, gradient_predivide_factor, groups, sparse_as_dense: as of hvd.DistributedOptimizer; `op` may
            not be Adasum, and `groups` is None or an int.
        accelerator, parallel_devices, checkpoint_io, precision_plugin: as of Lightning's strategies.

    ValueError: a wrong argument; in the trainer, `devices` or `num_nodes` that are not 1 nor those of the job, an
    accelerator other than the CPU and NVIDIA GPUs, or sync_batchnorm. HorovodInternalError: a rank is lost.
    """

    strategy_name = "horovod"

    def __init__(
        self,
        *,
        compression: type[Compressor] = Compression.none,
        op: int = hvd.Average,
        gradient_predivide_factor: float = 1.0,
        groups: int | None = None,
        sparse_as_dense: bool = False,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        check_options(compression, op, groups)
        if not hvd.is_initialized():
            hvd.init()
        super().__init__(accelerator, parallel_devices, HorovodEnvironment(), checkpoint_io, precision_plugin)
        self._options: dict[str, Any] = {
            "compression": compression,
            "op": op,
            "gradient_predivide_factor": gradient_predivide_factor,
            "groups": groups,
            "sparse_as_dense": sparse_as_dense,
        }
        rank_zero_only.rank = hvd.rank()

    # Who is where

    @property
    def is_distributed(self) -> bool:
        """Whether Lightning gives each rank a share of the data."""
        return are_several()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The arguments of DistributedSampler."""
        return {"num_replicas": hvd.size(), "rank": hvd.rank()}

    @property
    def num_nodes(self) -> int:
        """The number of hosts, of those with a rank of this local rank."""
        return hvd.cross_size()

    @num_nodes.setter
    def num_nodes(self, value: int) -> None:
        if value not in (1, hvd.cross_size()):
            raise ValueError(f"Trainer(num_nodes={value}): the job runs on {hvd.cross_size()}; leave num_nodes out")

    def set_world_ranks(self) -> None:
        """Called by the trainer when it knows the devices. ValueError: they do not fit the ranks of this host."""
        rank_zero_only.rank = hvd.rank()
        check_devices(self._devices, hvd.local_size())

    @property
    def _devices(self) -> list[torch.device]:
        return self.parallel_devices or [torch.device("cpu")]

    @property
    def root_device(self) -> torch.device:
        """The device of this rank. Where each rank sees all GPUs, the one of its local rank."""
        devices = self._devices
        if len(devices) > 1:
            return devices[hvd.local_rank()]
        if devices[0].type == "cuda" and hvd.local_size() > 1:
            return torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        return devices[0]

    # Setting up

    def model_to_device(self) -> None:
        """Moves the model to this rank's device."""
        self.model.to(self.root_device)

    def setup(self, trainer: Any) -> None:
        """Gives all ranks the parameters and buffers of rank 0, then does what Lightning does."""
        if self._layer_sync is not None:
            raise ValueError("Trainer(sync_batchnorm=True): use hvd.SyncBatchNorm for the layers of the model instead")
        self.model_to_device()
        module = self.lightning_module
        hvd.broadcast_parameters([*module.named_parameters(), *module.named_buffers()], root_rank=0)
        share_metrics(module)
        super().setup(trainer)

    def setup_optimizers(self, trainer: Any) -> None:
        """Makes the optimizers, and distributed ones of them. TypeError: one is not a torch optimizer."""
        super().setup_optimizers(trainer)
        made = self.optimizers
        self.optimizers = [self._distribute(number, optimizer) for number, optimizer in enumerate(made)]
        for config in self.lr_scheduler_configs:
            for optimizer, distributed in zip(made, self.optimizers, strict=True):
                if config.scheduler.optimizer is optimizer:  # callbacks look for it among the trainer's
                    config.scheduler.optimizer = distributed

    @property
    def optimizers(self) -> list[Optimizer]:
        """The distributed optimizers. Scripts get them by self.optimizers(), each within one of Lightning's."""
        made: list[Optimizer] = self._optimizers
        return made

    @optimizers.setter
    def optimizers(self, optimizers: list[Optimizer]) -> None:
        strategies.ParallelStrategy.optimizers.fset(self, optimizers)
        for shown in self._lightning_optimizers:
            hand_over(shown)

    def _distribute(self, number: int, optimizer: Any) -> Optimizer:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"HorovodStrategy: {type(optimizer).__name__} is not a torch.optim.Optimizer")
        self._broadcast_state(optimizer)
        names = names_of(optimizer, number, self.lightning_module)
        distributed: Optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=names, synchronize_in_backward=True, **self._options
        )
        return distributed

    @staticmethod
    def _broadcast_state(optimizer: Optimizer) -> None:
        if not isinstance(optimizer, torch.optim.LBFGS):  # whose state cannot be sent
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Loads the optimizers' states from `checkpoint`; all ranks get those of rank 0."""
        super().load_optimizer_state_dict(checkpoint)
        for optimizer in self.optimizers:
            self._broadcast_state(optimizer)

    # Training

    def _reducers(self) -> Iterator[GradientReducer]:
        for optimizer in self.optimizers:
            if isinstance(optimizer, _DistributedOptimizer) and optimizer._reducer is not None:
                yield optimizer._reducer

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """A context in which backward() only adds to this rank's gradients."""
        with ExitStack() as held:
            for reducer in self._reducers():
                held.enter_context(reducer.holding())
            yield

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        """Before each backward(). In a loop of the user's own several may come before a step, each of them reduced."""
        if self._options["op"] == hvd.Average:  # of other ops backward() raises: it would reduce the same part twice
            for reducer in self._reducers():
                reducer.accept_more()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **options: Any
    ) -> Any:
        """Takes a step with the gradients of all ranks, also if this rank's `closure` has computed none.

        Arguments and result as of Lightning's strategies.
        """
        reducer = optimizer._reducer if isinstance(optimizer, _DistributedOptimizer) else None
        if reducer is None:
            return super().optimizer_step(optimizer, closure, model, **options)
        was_reduced = reducer.is_reduced

        def reduced() -> Any:
            nonlocal was_reduced
            result = closure()
            if reducer.has_local or not (was_reduced or reducer.is_reduced):
                optimizer.synchronize()  # type: ignore[attr-defined]
            was_reduced = False
            return result

        return super().optimizer_step(optimizer, reduced, model, **options)

    def teardown(self) -> None:
        """Ends the reduction of these optimizers: the next fit() makes others for the same parameters."""
        for reducer in self._reducers():
            reducer.detach()
        super().teardown()

    # Collectives

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Returns `tensor` reduced over all ranks, or those of `group`, a hvd.ProcessSet; anything else as it is.

        `reduce_op`: "mean", "sum", "min", "max", "product" or a torch.distributed.ReduceOp. ValueError: another.
        """
        return reduce(tensor, group, reduce_op) if isinstance(tensor, torch.Tensor) else tensor

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """Returns the tensors of all N ranks as one of shape (N, *tensor.shape); differentiable with `sync_grads`."""
        return all_gather(tensor, group, sync_grads)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Returns rank `src`'s object; anything that pickle takes."""
        return obj if self._is_interrupted else hvd.broadcast_object(obj, src)

    def barrier(self, name: str | None = None) -> None:
        """Returns when all ranks have called it. `name` is not used."""
        if not self._is_interrupted:
            hvd.barrier()

    @property
    def _is_interrupted(self) -> bool:
        """Whether fit() is ending by an exception: callbacks that save a checkpoint then must not wait for others."""
        trainer = getattr(self.lightning_module, "_trainer", None)
        return trainer is not None and bool(trainer.interrupted)


mend_logging()
if "horovod" not in strategies.StrategyRegistry:
    strategies.StrategyRegistry.register("horovod", HorovodStrategy, description="Data parallel on Horovod's ranks")
