#include "runtime/engine/backend_options.h"

namespace hvd::engine {

namespace {

bool has_hierarchy(const config::RuntimeConfig& config, const topology::HostMap& hosts) {
  return config.hierarchical_allreduce && hosts.hosts() > 1 && hosts.is_homogeneous() && hosts.ranks_on(0).size() > 1;
}

}  // namespace

collectives::GlooBackendOptions backend_options(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                                                const topology::HostMap& hosts) {
  collectives::GlooBackendOptions options;
  if (set.id == kGlobalProcessSet && has_hierarchy(config, hosts)) {
    options.adasum_local_size = static_cast<int>(hosts.ranks_on(0).size());
  }
  options.deterministic = config.deterministic;
  return options;
}

Status check_hierarchy(const config::RuntimeConfig& config, const topology::HostMap& hosts) {
  if (!has_hierarchy(config, hosts) || hosts.is_host_by_host()) return Status::ok();
  int rank = 1;
  while (hosts.host_of(rank) >= hosts.host_of(rank - 1)) ++rank;
  return Status::invalid_argument("HOROVOD_HIERARCHICAL_ALLREDUCE needs ranks that are numbered host by host: rank " +
                                  std::to_string(rank) + " is on the host of rank " +
                                  std::to_string(hosts.ranks_on(hosts.host_of(rank)).front()) + ", rank " +
                                  std::to_string(rank - 1) + " between them is on another");
}

}  // namespace hvd::engine
