#pragma once

#include <optional>

#include "python/src/xla/collective.h"
#include "python/src/xla/ffi.h"

namespace hvd::xla {

// The custom call of collectives in functions that JAX has compiled (horovod/jax/_call.py), on the CPU and on a GPU of
// CUDA. The result of each argument has its position, and may be the same memory where an operation keeps the shape;
// behind them are JAX's tokens. It blocks until the operations are done; on a GPU the results are then in the order of
// the program's stream. Any thread, without the GIL.
ffi::Error* jax_collective_on_cpu(ffi::CallFrame* frame);
ffi::Error* jax_collective_on_cuda(ffi::CallFrame* frame);

// Why the last of these calls that failed did so, where JAX raises an error of its own. Once. Thread-safe.
std::optional<CallFailure> take_call_failure();

}  // namespace hvd::xla
