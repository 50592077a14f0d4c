#include "runtime/engine/backend_options.h"

namespace hvd::engine {

namespace {

bool has_hierarchy(const config::RuntimeConfig& config) {
  return config.hierarchical_allreduce && config.local_size > 1 && config.cross_size > 1 &&
         config.size == config.local_size * config.cross_size;
}

}  // namespace

collectives::GlooBackendOptions backend_options(const config::RuntimeConfig& config, const topology::ProcessSet& set) {
  collectives::GlooBackendOptions options;
  if (config.gloo_transport == config::GlooTransport::kTcp) options.wait_timeout = config.gloo_timeout;
  if (set.id == kGlobalProcessSet && has_hierarchy(config)) options.adasum_local_size = config.local_size;
  options.deterministic = config.deterministic;
  return options;
}

Status check_hierarchy(const config::RuntimeConfig& config) {
  const int expected = config.cross_rank * config.local_size + config.local_rank;
  if (!has_hierarchy(config) || config.rank == expected) return Status::ok();
  return Status::invalid_argument(
      "HOROVOD_HIERARCHICAL_ALLREDUCE needs ranks that are numbered host by host, equally many on each: local rank " +
      std::to_string(config.local_rank) + " of host " + std::to_string(config.cross_rank) + " is rank " +
      std::to_string(config.rank) + ", expected " + std::to_string(expected));
}

}  // namespace hvd::engine
