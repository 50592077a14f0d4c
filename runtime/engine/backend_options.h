#pragma once

#include "runtime/base/status.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/config/runtime_config.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

// What the configuration means for the backend of one process set. Pure, and the same on every member.
collectives::GlooBackendOptions backend_options(const config::RuntimeConfig& config, const topology::ProcessSet& set);

// kInvalidArgument when HOROVOD_HIERARCHICAL_ALLREDUCE is set and this rank can tell that the ranks are not numbered host by
// host: then the ranks would not agree on who shares a host. Without equal numbers of ranks per host there is no hierarchy.
Status check_hierarchy(const config::RuntimeConfig& config);

}  // namespace hvd::engine
