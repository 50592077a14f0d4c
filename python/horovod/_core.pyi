"""The native core: one session per process. Thin on purpose; policy lives in the Python packages above it.

Sources of errors: ValueError for what the caller did wrong (class A), HorovodInternalError for everything that went wrong
with other ranks or while running (classes B and C). The class is horovod.common.exceptions.HorovodInternalError, imported at
the first raise.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

__version__: str

# Codes of runtime/include/horovod/types.h.
OP_ALLREDUCE: int
OP_ALLGATHER: int
OP_BROADCAST: int
OP_ALLTOALL: int
OP_REDUCESCATTER: int
OP_BARRIER: int
OP_JOIN: int
OP_ADASUM: int

REDUCE_AVERAGE: int
REDUCE_SUM: int
REDUCE_ADASUM: int
REDUCE_MIN: int
REDUCE_MAX: int
REDUCE_PRODUCT: int

DTYPE_UINT8: int
DTYPE_INT8: int
DTYPE_UINT16: int
DTYPE_INT16: int
DTYPE_INT32: int
DTYPE_INT64: int
DTYPE_FLOAT16: int
DTYPE_FLOAT32: int
DTYPE_FLOAT64: int
DTYPE_BOOL: int
DTYPE_BFLOAT16: int

@final
class Handle:
    """One operation in flight. Keeps the objects given as `keep` alive until it is done and released."""

    def done(self) -> bool:
        """True when wait() will not block."""

    def wait(self) -> Any:
        """Blocks without the GIL until the operation ended; gives its `result`, or raises its error.

        Ctrl-C interrupts with KeyboardInterrupt.
        """

    def wait_in_callback(self) -> Any:
        """wait() for a thread of a framework that the main thread waits for without seeing signals.

        KeyboardInterrupt also after interrupt_waits().
        """

    def output_dlpack(self) -> Any:
        """After wait(): a DLPack capsule of the output that the core allocated (allgather, ...). Only once."""

    def received_splits(self) -> list[int]:
        """After wait(): rows received from each set rank (allgather: first dims; alltoall)."""

    def value(self) -> int:
        """After wait(): the integer result (join: the last rank)."""

def init(environment: dict[str, str] | None = None, process_sets: Sequence[Sequence[int]] = ()) -> None:
    """Starts the session from the environment (HOROVOD_*). A second call while initialised does nothing.

    `process_sets`: lists of global ranks to register, the same on all ranks. Raises ValueError when the environment is
    wrong, the other ranks can't be reached or give other lists; KeyboardInterrupt on Ctrl-C.
    """

def shutdown() -> None:
    """Ends the session on all ranks; idempotent; safe before init()."""

def announce_failure(why: str) -> None:
    """Tells the other ranks and the launcher that this process goes down because of `why`. shutdown() has to follow.

    Does nothing before init(), after shutdown(), and when another rank has failed before.
    """

def announce_exit() -> None:
    """Tells the launcher that this process ends while the job goes on. shutdown() has to follow."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def epoch() -> int:
    """Number of the session in this job: 1, 2, ... (0 in a world of size 1 without a launcher)."""

def joins() -> int:
    """How often all ranks have joined in this session; 0 without one."""

# A submission is made of values. Call: what is done (OP_...), under which name, which includes the prefix
# (`allreduce.<name>`), from which global rank (broadcast, else -1), with how many rows for each set rank (alltoall; equal shares
# when empty). Tensor: contiguous memory (data_ptr, output_ptr, shape, dtype, device); the output is the data for in-place forms and
# 0 when the core shall allocate (allgather, alltoall, reducescatter). Reduction: (REDUCE_..., prescale, postscale, process set).
_Call = tuple[int, str, int, Sequence[int]]
_Tensor = tuple[int, int, Sequence[int], int, int]
_Reduction = tuple[int, float, float, int]

def enqueue(call: _Call, tensor: _Tensor, reduction: _Reduction, keep: Any, result: Any = None, /) -> Handle:
    """Submits one operation; never blocks on the network. `keep` holds the tensors alive; `result` is what wait() gives."""

def enqueue_group(
    call: _Call, tensors: Sequence[_Tensor], reduction: _Reduction, keep: Any, results: Sequence[Any] | None = None
) -> list[Handle]:
    """Submits operations that run only when all members are ready on all ranks, each under `<name>_<i>of<n>`."""

def new_output(shape: Sequence[int], dtype: int) -> Any:
    """A DLPack capsule over memory of the core for a result; a large one's pages were used before, so they cost nothing.

    Raises HorovodInternalError before init(), MemoryError.
    """

@final
class RepeatedAllreduce:
    """An allreduce in place that is submitted again and again under one name: a parameter's gradient.

    It is its own handle: start(), then wait(), then start() again.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: int, reduction: _Reduction) -> None: ...
    def start(self, data_ptr: int, shape: tuple[int, ...], keep: Any) -> None:
        """Submits the contiguous memory at `data_ptr`, as enqueue() does. `shape` may differ from the last one."""

    def wait(self) -> None:
        """Blocks without the GIL until the last submission ended; raises its error."""

def wait_all(submitted: Sequence[Handle | RepeatedAllreduce]) -> list[Any]:
    """Blocks without the GIL until all have ended; gives what each wait() gives, or raises the first one's error.

    KeyboardInterrupt leaves them in flight: they may be waited for again.
    """

def built_with() -> dict[str, int]:
    """What this build has: gloo 1, mpi 0, nccl 0, cuda 0, rocm 0, ddl 0, ccl 0."""

def gloo_library() -> str:
    """The file that the Gloo symbols used by the core come from."""

def process_sets() -> dict[int, list[int]]:
    """Process set id -> global ranks, 0 included."""

def pending_operations() -> list[str]:
    """Names of the operations that this rank submitted and that have not ended, in the order of submission."""

def process_set_size(process_set: int) -> int:
    """The number of its members; 0 when there is no such set."""

def seal_payload(purpose: str, payload: memoryview) -> bytes:
    """What to send behind the contiguous bytes of `payload`, so that receivers know them for this rank's. For one use."""

def open_payload(sender: int, purpose: str, sealed: memoryview) -> int:
    """How many of these bytes are the payload; the rest is its seal. HorovodInternalError when global rank `sender` did not
    make them for this purpose, or when they were here before.
    """

def add_process_set(ranks: Sequence[int]) -> int:
    """Registers a process set and gives its id. Blocks without the GIL until every rank has asked for the same.

    Raises ValueError for ranks that are no set, for a set that exists, when the session ends; HorovodInternalError when
    a rank is lost; KeyboardInterrupt on Ctrl-C (the request stays).
    """

def remove_process_set(process_set: int) -> None:
    """Removes a process set. Blocks and raises as add_process_set; ValueError for an unknown id."""

def interrupt_waits() -> None:
    """Ends the waits of TensorFlow's kernels with an error, and those that begin before the main thread is back.

    Does nothing when the main thread has answered ask_main_thread(). The operations themselves go on.
    """

def allow_waits() -> None:
    """Ends what interrupt_waits() has begun, though the main thread is not back."""

def ask_main_thread() -> None:
    """Asks the main thread whether it executes Python code; main_thread_answers() then tells."""

def main_thread_answers(within_s: float) -> bool:
    """Blocks without the GIL until the main thread has executed Python code since ask_main_thread(), or for that long."""

def raise_interrupt(signum: int, frame: Any) -> None:
    """A handler for SIGINT: raises KeyboardInterrupt, or where that would get lost inside TensorFlow, a little later."""

def raised_interrupts() -> int:
    """How often raise_interrupt() has raised."""
