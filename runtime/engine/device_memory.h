#pragma once

#include <memory>
#include <span>

#include "horovod/session.h"
#include "runtime/collectives/cuda/devices.h"

namespace hvd::engine {

// On the thread that submits: gives operations on tensors in device memory the event after which they may run. What
// was put into the tensor's stream until now comes before it; nobody waits. Others are left alone. kInvalidArgument,
// naming the tensor, when there is no such GPU, when the memory is not of that GPU, or while a graph is captured.
// Without `may_precede_gpu` none may.
Status mark_ready(collectives::cuda::Devices& devices, std::span<Operation> operations, bool may_precede_gpu);

}  // namespace hvd::engine
