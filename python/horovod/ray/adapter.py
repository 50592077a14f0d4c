"""The driver's part of a job with a fixed number of workers; through Ray Client it is an actor in the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from horovod import _env
from horovod.ray._calls import Place, WorkerDiedError, gather
from horovod.ray._secrets import NodeSecrets
from horovod.ray.coordinator import Coordinator
from horovod.ray.ray_logger import Sink
from horovod.ray.settings import MiniSettings
from horovod.ray.strategy import BaseStrategy, ColocatedStrategy, PGStrategy
from horovod.ray.utils import detect_nics, nics_to_env_var

__all__ = ["StaticAdapter", "StaticParams"]

_TLS = "HOROVOD_TLS"
# How long what still runs on other ranks after a failure may take, before the next call is refused. By then they have
# heard of the failure, if they use Horovod, and have raised.
_WAIT_FOR_OTHERS_S = 10.0


class ContradictionError(AssertionError, ValueError):
    """Two arguments exclude each other. Horovod's executor ends by an assertion then."""


@dataclass(frozen=True)
class StaticParams:
    """Which workers there are to be: `num_workers`, or `num_hosts` times `num_workers_per_host`."""

    num_workers: int | None
    num_hosts: int | None
    num_workers_per_host: int
    cpus_per_worker: float
    use_gpu: bool
    gpus_per_worker: int | None
    use_current_placement_group: bool

    def check(self) -> None:
        """Raises if they contradict each other, or say nothing."""
        if self.num_workers is not None and self.num_hosts is not None:
            raise ContradictionError(
                f"num_workers={self.num_workers} and num_hosts={self.num_hosts}, expected one of them"
            )
        if self.num_workers is None and self.num_hosts is None:
            raise ValueError("neither num_workers, nor num_hosts, nor min_workers was given")


@dataclass(frozen=True)
class _Crew:
    """The workers by rank, and where they are: a call keeps those that it began with."""

    workers: Sequence[Any] = ()
    places: Sequence[Place] = ()


class StaticAdapter:
    """Starts the workers of a job, hosts their rendezvous, calls functions on them. For one job.

    Used by one thread at a time, but for shutdown(), which ends a call that another thread waits in, start() too.
    """

    def __init__(self, settings: MiniSettings, params: StaticParams) -> None:
        self._settings = settings
        self._params = params
        self._strategy: BaseStrategy | None = None
        self._coordinator: Coordinator | None = None
        self._crew = _Crew()
        self._unfinished: list[Any] = []  # calls that went on when run() had failed
        self._lost = ""  # whose process has died
        self._secrets = NodeSecrets()
        self._is_over = False  # from shutdown() on
        self._starting = threading.Lock()

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """As RayExecutor.start(). If it fails nothing is left."""
        with self._starting:
            if self._strategy is not None:
                raise RuntimeError("start(): the workers have been started; shutdown() ends them")
            strategy = self._strategy = self._make_strategy()
            coordinator = self._coordinator = Coordinator(self._settings)
            try:
                self._check_not_over()
                self._start_workers(strategy, coordinator, dict(extra_env_vars or {}))
                arguments = (executable_cls, executable_args, executable_kwargs)
                crew = self._crew
                gather([worker.start_executable.remote(*arguments) for worker in crew.workers], crew.places)
                self._check_not_over()
            except BaseException:
                self._end(strategy, coordinator)
                raise

    def _check_not_over(self) -> None:
        if self._is_over:
            raise RuntimeError("start(): shutdown() was called before the workers had started")

    def run_remote(self, func: Callable[[Any], Any]) -> list[Any]:
        """The calls of func(executable) that begin on all workers, in rank order."""
        return self._begin(self._usable_crew(), func)

    def run(self, func: Callable[[Any], Any], queue: Sink | None = None) -> list[Any]:
        """The results of func(executable) in rank order. What ranks log goes to `queue`."""
        crew = self._usable_crew()
        try:
            if queue is not None:
                self._gather([worker.set_queue.remote(queue) for worker in crew.workers], crew.places)
            return self._gather(self._begin(crew, func), crew.places)
        finally:
            if queue is not None:
                for worker in crew.workers:
                    worker.set_queue.remote(None)

    def run_single(self, func: Callable[[Any], Any]) -> Any:
        """The result of func(executable) on rank 0."""
        crew = self._usable_crew()
        return self._gather([crew.workers[0].execute.remote(func)], crew.places[:1])[0]

    def shutdown(self) -> None:
        """Ends the workers, the rendezvous and the placement group; may be called again."""
        self._is_over = True
        self._end(self._strategy, self._coordinator)
        # What a start() of another thread makes from here on, it removes. It is about to fail, for it has no workers.
        if self._starting.acquire(timeout=_WAIT_FOR_OTHERS_S):
            self._starting.release()

    def _end(self, strategy: BaseStrategy | None, coordinator: Coordinator | None) -> None:
        self._strategy, self._coordinator = None, None
        self._crew, self._unfinished, self._lost = _Crew(), [], ""
        try:
            if strategy is not None and ray.is_initialized():  # else Ray has ended, and them with it
                try:
                    strategy.shutdown()
                finally:
                    self._secrets.forget()
        finally:
            if coordinator is not None and coordinator.rendezvous is not None:
                coordinator.rendezvous.stop()

    def _usable_crew(self) -> _Crew:
        """The workers, on which nothing runs; RuntimeError if there are none."""
        crew = self._crew
        if not crew.workers:
            raise RuntimeError("there are no workers: call start() first")
        if self._lost:
            raise RuntimeError(f"{self._lost} shutdown() ends the other workers, start() begins anew")
        if self._unfinished:
            refs = self._unfinished
            _, self._unfinished = ray.wait(refs, num_returns=len(refs), timeout=_WAIT_FOR_OTHERS_S)
        if self._unfinished:
            raise RuntimeError(
                "a call that failed on one rank still runs on others, so that another would wait for it: "
                "shutdown() ends them, start() begins anew"
            )
        return crew

    def _begin(self, crew: _Crew, func: Callable[[Any], Any]) -> list[Any]:
        shared = ray.put(func)
        return [worker.execute.remote(shared) for worker in crew.workers]

    def _gather(self, refs: Sequence[Any], places: Sequence[Place]) -> list[Any]:
        try:
            return gather(refs, places)
        except WorkerDiedError as error:
            self._lost = str(error).partition("\n")[0]
            raise
        except BaseException:
            _, self._unfinished = ray.wait(list(refs), num_returns=len(refs), timeout=0)
            raise

    def _start_workers(self, strategy: BaseStrategy, coordinator: Coordinator, extra: dict[str, Any]) -> None:
        workers, _ = strategy.create_workers()
        crew = self._crew = _Crew(workers, strategy.places)
        places = crew.places
        for place in places:
            coordinator.register(place.hostname, place.node_id, place.rank)
        numbers = coordinator.finalize_registration()
        tls = str(extra.get(_TLS, _env.get(_TLS) or "0"))
        common = coordinator.establish_rendezvous(tls=_env.says_yes(tls))
        here = ray.get_runtime_context().get_node_id()
        secret_file = common.pop("HOROVOD_SECRET_FILE")
        others = dict.fromkeys(place.node_id for place in places if place.node_id != here)
        self._secrets.hand_over(secret_file, others, self._settings.timeout_s)
        nics = nics_to_env_var(detect_nics(self._settings))
        gpus = self._gpus_of_nodes(crew)
        calls = []
        for worker, place in zip(workers, places, strict=True):
            own = {
                "HOROVOD_RANK": place.rank,
                "HOROVOD_SIZE": len(places),
                "HOROVOD_HOSTNAME": place.node_id,
                "HOROVOD_SECRET_FILE": self._secrets.file_of(place.node_id, secret_file),
                # The nodes may have been started by srun or mpirun, whose numbers are not those of the workers.
                "HOROVOD_IGNORE_STARTER": 1,
            }
            variables = common | own | numbers[place.rank] | gpus.get(place.node_id, {}) | extra | nics
            calls.append(worker.update_env_vars.remote(variables))
        self._in_time(calls, crew)

    def _make_strategy(self) -> BaseStrategy:
        params = self._params
        shape = (params.use_gpu, params.cpus_per_worker, params.gpus_per_worker)
        has_group = params.use_current_placement_group and ray.util.get_current_placement_group() is not None
        if params.num_workers is None and not has_group:
            return ColocatedStrategy(self._settings, params.num_hosts or 1, params.num_workers_per_host, *shape)
        workers = params.num_workers or (params.num_hosts or 1) * params.num_workers_per_host
        force = not params.use_current_placement_group
        return PGStrategy(self._settings, workers, *shape, force_create_placement_group=force)

    def _in_time(self, calls: Sequence[Any], crew: _Crew) -> list[Any]:
        return gather(calls, crew.places, "start", self._settings.timeout_s, "wait longer (timeout_s)")

    def _gpus_of_nodes(self, crew: _Crew) -> dict[str, dict[str, str]]:
        """CUDA_VISIBLE_DEVICES by node: all GPUs that its workers have, so that each can reach the others' by NCCL."""
        if not self._params.use_gpu:
            return {}
        found: dict[str, list[str]] = {}
        ids = self._in_time([worker.get_gpu_ids.remote() for worker in crew.workers], crew)
        for place, own in zip(crew.places, ids, strict=True):
            found.setdefault(place.node_id, []).extend(str(gpu) for gpu in own)
        return {node: {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(gpus))} for node, gpus in found.items()}
