#pragma once

#include <vector>

#include "horovod/session.h"
#include "runtime/base/status.h"

namespace hvd::engine {

// What one rank can say about an operation by itself, beyond what the tensor queue checks: codes that name nothing,
// memory that is missing, reductions and factors that the type does not have, devices that are not built. What passes
// here, the kernels can do: they abort where it is not so. An allreduce with Adasum becomes the operation adasum. Pure.
Status prepare(Operation& operation);

// What the members of a group must have in common. Requires: each was prepared.
Status check_group(const std::vector<Operation>& operations);

// An alltoall's splits for a process set of `set_size` ranks: checked, and made equal shares of dimension 0 when there
// are none. A tensor without dimensions is left to the negotiation, which tells all ranks.
Status prepare_splits(Operation& operation, int set_size);

}  // namespace hvd::engine
