"""The native core: one session per process. It is thin on purpose; the Python packages above it decide.

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
DTYPE_FLOAT8_E4M3FN: int
DTYPE_FLOAT8_E5M2: int

@final
class Handle:
    """One operation in flight. The object given as `keep_alive` lives at least until it is done."""

    def done(self) -> bool:
        """Whether wait() will not block."""

    def wait(self) -> Any:
        """Blocks without the GIL until the operation has ended; returns its `result`, or raises its error.

        KeyboardInterrupt on Ctrl-C; the operation goes on.
        """

    def wait_in_callback(self) -> Any:
        """As wait(), for a thread of a framework that the main thread waits for without handling signals.

        KeyboardInterrupt also after interrupt_waits().
        """

    @property
    def dtype(self) -> int:
        """The code of the type of its tensor."""

    def result(self) -> Any:
        """After a wait() that went well: what that returned."""

    def output_dlpack(self) -> Any:
        """After wait(): a DLPack capsule of the output that the core allocated (allgather, ...). Only once."""

    def received_splits(self) -> list[int]:
        """After wait(): rows received from each set rank (allgather: first dims; alltoall)."""

    def value(self) -> int:
        """After wait(): the integer result (join: the last rank)."""

@final
class HandleGroup:
    """The operations of a group. HandleGroup() is one of none, which is done."""

    def __init__(self) -> None: ...
    def done(self) -> bool: ...
    def wait(self) -> list[Any]:
        """As wait_all(handles())."""

    def handles(self) -> list[Handle]: ...

@final
class MxnetCall:
    """A collective that MXNet's engine was given."""

    def wait(self) -> str | None:
        """Why it has failed, or None; "" if the engine left it out, because what an input depends on has failed."""

    def output_dlpack(self, index: int) -> Any:
        """After it has ended well: the capsule ("dltensor") of one of the results that the core allocated."""

    def received_splits(self) -> list[int]:
        """After that: of an alltoall, how many rows came from each rank."""

@final
class RendezvousServer:
    """Where the processes of one job meet: horovod.runner.rendezvous, which has the documentation."""

    def __init__(
        self, num_proc: int, listen: Sequence[str], port: int, secret_file: str | None, directory: str, tls: bool
    ) -> None:
        """Listens. Without `secret_file`, a fresh secret is made, in a file in `directory`. ValueError for what can't be."""

    def stop(self) -> None:
        """Closes all connections and removes the secret file that was made; idempotent."""

    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def secret_file(self) -> str: ...

def init(
    environment: dict[str, str] | None = None, process_sets: Sequence[Sequence[int]] = (), progress: int = 0
) -> None:
    """Starts the session from the environment (HOROVOD_*). Does nothing while a session is running.

    `process_sets`: lists of global ranks to register, the same on all ranks. Raises ValueError when the environment is
    wrong, or the other ranks cannot be reached or give other lists; KeyboardInterrupt on Ctrl-C. `progress`: how far this
    process' training has come; in an elastic job who has come furthest becomes rank 0.
    """

def shutdown() -> None:
    """Ends the session on all ranks; idempotent; safe before init()."""

def announce_failure(why: str) -> None:
    """Reports to the other ranks and the launcher that this process fails because of `why`. shutdown() has to follow.

    Does nothing before init(), after shutdown(), and if another rank has failed before.
    """

def announce_exit() -> None:
    """Reports to the launcher that this process ends while the job goes on. shutdown() has to follow."""

def may_leave_later() -> bool:
    """Asks the launcher's agent, after a SIGTERM, whether this process may leave its elastic job after the next commit.

    Not when the job itself ends the process, and not without --grace.
    """

def let_waits_return() -> None:
    """The process ends, after shutdown(): waits for threads that were in a wait here to come back to Python, 1 s at most."""

def leave_job() -> None:
    """The process ends, after its last session: says goodbye to the starter that began it, if that was not horovodrun.

    Rank 0, which hosts the rendezvous of such a job, waits up to ten seconds for the others to end their sessions.
    """

def is_initialized() -> bool: ...
def is_child_of_rank() -> bool:
    """Whether this is a child that was forked from a rank of several: it has the numbers of that, and no session."""

def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def take_host_updates() -> list[tuple[int, int]]:
    """What the launcher of an elastic job has said of hosts since the last call: ms since 1970, and bits of
    HostUpdateResult. Rank 0 alone hears of them.
    """

def epoch() -> int:
    """Number of the session, of no other session of any job; the next one's is higher (0: a world of size 1)."""

def start_timeline(file: str, mark_cycles: bool) -> None:
    """Rank 0 writes a timeline to `file` from now on; one that cannot be written is an error in the log. ValueError
    before init().
    """

def stop_timeline() -> None:
    """Ends it; the file is complete then. ValueError before init()."""

def joins() -> int:
    """How often all ranks have joined in this session; 0 without one."""

# The values of a submission. Call: kind (OP_...), name with its prefix (`allreduce.<name>`), global root rank (broadcast, else
# -1), number of rows for each set rank (alltoall; equal shares if empty). Tensor: contiguous memory (data_ptr, output_ptr,
# shape, dtype, place), where the place is -1 for the CPU or (GPU, stream, current_stream) with the address of the stream
# in which the tensor is made and what gives, for a GPU, the address of the stream that is current: wait() lets that one
# wait for the result, and the GPU may not have made it yet; None: wait() returns when it has. output_ptr is data_ptr for in-place forms, and 0 if the core shall allocate (allgather, alltoall,
# reducescatter), or (ptr, shape): memory for the result if it has this shape, which the caller guesses, and for whose place it answers; if it has another one, wait() returns None, and output_dlpack() has it.
# Reduction: (REDUCE_..., prescale, postscale, id of the process set).
_Call = tuple[int, str, int, Sequence[int]]
_Place = int | tuple[int, int, Callable[[int], int] | None]
_Output = int | tuple[int, Sequence[int]]
_Tensor = tuple[int, _Output, Sequence[int], int, _Place]
_Reduction = tuple[int, float, float, int]

def enqueue(
    call: _Call, tensor: _Tensor, reduction: _Reduction, keep_alive: Any, result: Any = None, is_awaited: bool = False, /
) -> Handle:
    """Submits one operation; never blocks on the network. `keep_alive` owns the memory; wait() returns `result`.

    `is_awaited`: the caller waits for it at once, and its thread may do a part of the work meanwhile.
    """

def group_member_names(group: str, count: int) -> list[str]:
    """Those under which enqueue_group() submits so many operations."""

def enqueue_group(
    call: _Call, tensors: Sequence[_Tensor], reduction: _Reduction, keep_alive: Any, results: Sequence[Any] | None = None
) -> HandleGroup:
    """Submits operations of which none runs before all are ready on all ranks, each under `<name>_<i>of<n>`."""

# (kind, name, root_rank, tensor, output, op, prescale, postscale, id of the process set, is_awaited)
_EnqueueTensor = Callable[[int, str, int, Any, Any, int, float, float, int, bool], Handle | None]
_EnqueueTensors = Callable[[_Call, list[Any], _Reduction], HandleGroup | None]
_StartTensor = Callable[[RepeatedAllreduce, Any], bool]

def tensor_calls(
    classes: tuple[type, ...], current_stream: Callable[[int], int]
) -> tuple[_EnqueueTensor, _EnqueueTensors, _StartTensor] | None:
    """enqueue(), enqueue_group() and RepeatedAllreduce.start() for tensors of these classes, which they read.

    The first writes to `output`, which may be the tensor itself, and gives it as its result; the others work in place.
    Where a tensor wants a closer look they give None, the third one False, and submit nothing: it is of another class
    or a subclass, is neither in CPU memory nor on a GPU of CUDA, or not where the others are, has gaps, is negated
    lazily, or has a type that not all reductions take, or is not the repeated one's. `current_stream`: as in a place,
    which they ask before. In place of all, None if the first class does not offer DLPack's C functions
    (`__dlpack_c_exchange_api__`; torch does from 2.10 on).
    """

def new_output(shape: Sequence[int], dtype: int) -> Any:
    """A DLPack capsule over memory of the core for a result; large ones reuse pages, which then need no page faults.

    Raises HorovodInternalError before init(), MemoryError.
    """

def new_shared(shape: Sequence[int], dtype: int) -> Any:
    """A DLPack capsule over zeros in memory that the other ranks of this host reach too; None where they share none.

    An allreduce in place there copies nothing. A forked child does not have it. Raises HorovodInternalError before
    init().
    """

@final
class RepeatedAllreduce:
    """An allreduce in place that is submitted again and again under one name: a parameter's gradient.

    It is its own handle: start(), then wait(), then start() again.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: int, reduction: _Reduction) -> None: ...
    @property
    def dtype(self) -> int: ...
    def start(self, data_ptr: int, shape: tuple[int, ...], keep_alive: Any, place: _Place = -1) -> None:
        """Submits the contiguous memory at `data_ptr`, as enqueue() does. `shape` may differ from the last one."""

    def wait(self) -> None:
        """Blocks without the GIL until the last submission has ended; raises its error."""

def wait_all(submitted: Sequence[Handle | RepeatedAllreduce]) -> list[Any]:
    """Blocks without the GIL until all have ended; returns the list of their results, or raises the first error.

    KeyboardInterrupt leaves them in flight: they may be waited for again.
    """

def built_with() -> dict[str, int]:
    """What this build has: gloo 1, cuda 1, mpi 0, rocm 0, ddl 0, ccl 0."""

def nccl_version() -> int:
    """The version code of the NCCL that this process finds, which it loads; 0 if there is none."""

def gloo_library() -> str:
    """The file that the Gloo symbols used by the core come from."""

def count_free_ports() -> int:
    """How many ports of HOROVOD_PORT_RANGE, of the first 4096, this rank of a job could listen on. Needs no init()."""

def try_routes(tell: Callable[[list[tuple[int, str, str, str, int, str]]], None]) -> None:
    """Joins the job, tries to reach each other rank at each of its addresses, tells what came of it, and leaves.

    Each try: the rank, its address and interface, the outcome, the round trip in microseconds, the error. Needs no init().
    """

def process_sets() -> dict[int, list[int]]:
    """Process set id -> global ranks, 0 included."""

def pending_operations() -> list[str]:
    """Names of the operations that this rank submitted and that have not ended, in the order of submission."""

def process_set_size(process_set: int) -> int:
    """The number of members of a process set; 0 if there is no such set."""

def seal_payload(purpose: str, payload: memoryview) -> bytes:
    """The seal to send after the contiguous bytes of `payload`; it proves that they are this rank's. For one use."""

def open_payload(sender: int, purpose: str, sealed: memoryview) -> int:
    """How many of these bytes are the payload; the rest is its seal. HorovodInternalError if global rank `sender` did not
    make them for this purpose, or if they were opened before.
    """

def add_process_set(ranks: Sequence[int]) -> int:
    """Registers a process set and returns its id. Blocks without the GIL until every rank has requested the same.

    ValueError for ranks that are no set, for a set that exists, and if the session ends; HorovodInternalError if a rank
    is lost; KeyboardInterrupt on Ctrl-C (the request is not withdrawn).
    """

def remove_process_set(process_set: int) -> None:
    """Removes a process set. Blocks and raises as add_process_set(); ValueError for an unknown id."""

def install_native_stacks() -> None:
    """Native stacks on stderr before what faulthandler writes when a signal ends the process; for signals that it has."""

def install_stacks(signum: int, fd: int, register_writer: Callable[[], None]) -> bool:
    """Makes the signal do what register_writer() registers for it, and then write a form feed to the file.

    False, and nothing is done, where the signal has another action than the default one.
    """

def interrupt_waits() -> None:
    """Ends the waits of TensorFlow's kernels with an error, also those that begin before the main thread answers.

    Does nothing if the main thread has answered ask_main_thread(). The operations themselves go on.
    """

def jax_collective_handlers() -> dict[str, Any]:
    """The handlers of the custom call of collectives in JAX's programs, as jax.ffi takes them, by platform."""

def mxnet_load(library: int) -> None:
    """Finds MXNet's functions in a library by its handle of dlopen(). HorovodInternalError names what is missing."""

def mxnet_push(
    call: tuple[int, str, int, Sequence[int]],
    reduction: tuple[int, float, float, int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    grouped: bool,
    priority: int,
) -> MxnetCall:
    """Gives MXNet's engine a collective, which it submits when its arrays are ready, those with a high priority first.

    `call`, `reduction`: as for enqueue(). `inputs`, `outputs`: addresses of NDArrays; outputs as many as inputs, the
    same in place, or none where the core allocates. `grouped`: all or none, each called `<name>_<i>of<n>`; without it
    there is one input. ValueError for what can't be; other errors are those of the engine's operation.
    """

def mxnet_same_memory(one: int, other: int) -> bool:
    """Whether the NDArrays at two addresses are parts of one memory."""

def mxnet_wait_for_calls(limit_s: float | None = None) -> bool:
    """Waits until all that mxnet_push() has given MXNet's engine has ended; True then. KeyboardInterrupt on Ctrl-C.

    False: none has ended for `limit_s` seconds.
    """

def raise_call_failure() -> None:
    """Raises why the last such call that failed did so, once: KeyboardInterrupt after Ctrl-C."""

def allow_waits() -> None:
    """Ends the effect of interrupt_waits(), though the main thread has not answered."""

def ask_main_thread() -> None:
    """Asks the main thread to answer as soon as it executes Python code: see main_thread_answers()."""

def main_thread_answers(within_s: float) -> bool:
    """Whether the main thread answers ask_main_thread() within that time. Blocks without the GIL."""

def raise_interrupt(signum: int, frame: Any) -> None:
    """A handler for SIGINT: raises KeyboardInterrupt, a little later if TensorFlow would swallow it."""

def raised_interrupts() -> int:
    """How often raise_interrupt() has raised."""
