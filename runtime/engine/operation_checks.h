#pragma once

#include "horovod/session.h"
#include "runtime/base/status.h"

namespace hvd::engine {

// What one rank can say about an operation by itself, beyond what the tensor queue checks (class A and A' of contract
// 01 §1.9): reductions and types that the operation does not have, devices that are not built. An allreduce with Adasum
// becomes the operation adasum. Pure.
Status prepare(Operation& operation);

// An alltoall's splits for a process set of `set_size` ranks: checked, and made equal shares of dimension 0 when there
// are none. A tensor without dimensions is left to the negotiation, which tells all ranks.
Status prepare_splits(Operation& operation, int set_size);

}  // namespace hvd::engine
