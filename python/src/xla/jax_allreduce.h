#pragma once

#include <optional>

#include "horovod/status.h"
#include "python/src/xla/ffi.h"

namespace hvd::xla {

// The custom call with which a step that JAX has compiled reduces its gradients (horovod/_keras/jax_call.py), on the
// CPU and on a GPU of CUDA. Each argument is reduced into the result of its position, which may be the same memory;
// behind them are JAX's tokens. It blocks until the operations are done; on a GPU the results are then in the order of
// the program's stream. Any thread, without the GIL.
ffi::Error* jax_allreduce_on_cpu(ffi::CallFrame* frame);
ffi::Error* jax_allreduce_on_cuda(ffi::CallFrame* frame);

// Why the last of these calls failed, where JAX raises an error of its own.
struct StepFailure {
  Status status;
  bool interrupted = false;  // by Ctrl-C
};

// Once; nothing after a call that went well. Thread-safe.
std::optional<StepFailure> take_step_failure();

}  // namespace hvd::xla
