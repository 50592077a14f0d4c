#pragma once

#include <vector>

#include "horovod/session.h"
#include "runtime/base/status.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

// What one rank can say about an operation by itself, before it is submitted. Pure; every error is kInvalidArgument
// unless it says otherwise. What passes here, the kernels can do and a message can hold: they abort where it is not so.

// Codes that name nothing, names and shapes out of limits, memory that is missing, reductions and factors that the type
// does not have, devices that are not built. An allreduce with Adasum becomes the operation adasum.
Status prepare(Operation& operation);

// What the members of a group must have in common. Requires: each was prepared.
Status check_group(const std::vector<Operation>& operations);

// A broadcast's root and an alltoall's splits, which get equal shares of dimension 0 when there are none. A tensor
// without dimensions is left to the negotiation, which reports it on all ranks. Requires: `operation` is one of this
// set.
Status prepare_in_set(Operation& operation, const topology::ProcessSet& set);

// The error of an operation whose name is in use.
Status pending_already(const Operation& operation);

}  // namespace hvd::engine
