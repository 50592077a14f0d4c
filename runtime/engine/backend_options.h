#pragma once

#include "runtime/base/status.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/config/runtime_config.h"
#include "runtime/topology/host_map.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

// What the configuration means for the backend of one process set. Pure, and the same on every member.
collectives::GlooBackendOptions backend_options(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                                                const topology::HostMap& hosts);

// kInvalidArgument, on all ranks, when HOROVOD_HIERARCHICAL_ALLREDUCE is set and ranks are not numbered host by host.
// Without equal numbers of ranks on several hosts there is no hierarchy.
Status check_hierarchy(const config::RuntimeConfig& config, const topology::HostMap& hosts);

}  // namespace hvd::engine
