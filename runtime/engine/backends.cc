#include "runtime/engine/backends.h"

#include <utility>
#include <vector>

#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/local_backend.h"
#include "runtime/collectives/nccl/device_backend.h"
#include "runtime/transport/data/message_context.h"

namespace hvd::engine {

namespace {

bool has_hierarchy(const config::RuntimeConfig& config, const topology::HostMap& hosts) {
  return config.hierarchical_allreduce && hosts.hosts() > 1 && hosts.is_homogeneous() && hosts.ranks_on(0).size() > 1;
}

collectives::GlooBackendOptions gloo_options(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                                             const topology::HostMap& hosts) {
  collectives::GlooBackendOptions options;
  if (set.id == kGlobalProcessSet && has_hierarchy(config, hosts)) {
    options.adasum_local_size = static_cast<int>(hosts.ranks_on(0).size());
  }
  options.deterministic = config.deterministic;
  return options;
}

collectives::GlooContextSource gloo_source(const topology::ProcessSet& set, transport::Fabric& fabric) {
  collectives::GlooContextSource source;
  source.make = [&fabric, set] { return fabric.make_context(set.context_id, set.ranks); };
  source.progress = [&fabric, id = set.context_id] {
    transport::ContextProgress now = fabric.progress(id);
    return collectives::PeerProgress{now.moved, std::move(now.waits_for)};
  };
  source.abort = [&fabric, id = set.context_id](const Status& why) { fabric.abort_context(id, why); };
  return source;
}

// Why the members of the set have no memory in common: the same on all of them.
std::string why_no_memory(const topology::ProcessSet& set, const topology::HostMap& hosts,
                          const collectives::SharedMemory& memory) {
  for (const int rank : set.ranks) {
    if (hosts.host_of(rank) == hosts.host_of(set.ranks.front())) continue;
    return "ranks " + std::to_string(set.ranks.front()) + " and " + std::to_string(rank) + " are on two hosts";
  }
  if (memory.segment == nullptr) return memory.why_not;
  if (set.context_id < collectives::ShmSegment::kRegions) return "";
  return "there is memory for the first " + std::to_string(collectives::ShmSegment::kRegions) +
         " process sets of a session, and this is number " + std::to_string(set.context_id + 1);
}

collectives::ShmSet shm_set(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                            const topology::Membership& membership, const collectives::SharedMemory& memory) {
  return {.ranks = set.ranks,
          .own = topology::index(set.set_rank(membership.rank()).value()),
          .context_id = set.context_id,
          .why_not = why_no_memory(set, membership.hosts(), memory),
          .deterministic = config.deterministic};
}

using Backends = std::vector<std::unique_ptr<collectives::CollectiveBackend>>;

// What is in device memory and NCCL cannot do goes through the backends that are there already.
void add_device_backend(Backends& backends, const config::RuntimeConfig& config,
                        std::shared_ptr<collectives::cuda::Devices> devices, const std::vector<int>& ranks,
                        std::vector<int> hosts_of_ranks, int set_rank) {
  std::vector<collectives::CollectiveBackend*> hosts;
  for (const auto& backend : backends) hosts.push_back(backend.get());
  collectives::nccl::DeviceOptions options{
      config.nccl_library,  config.gloo_timeout, ranks, std::move(hosts_of_ranks), set_rank,
      config.deterministic, config.batch_copies};
  backends.push_back(
      std::make_unique<collectives::nccl::DeviceBackend>(std::move(devices), std::move(hosts), std::move(options)));
}

}  // namespace

std::shared_ptr<collectives::BackendList> make_backends(const config::RuntimeConfig& config,
                                                        const topology::ProcessSet& set,
                                                        const topology::Membership& membership,
                                                        const collectives::SharedMemory& memory,
                                                        transport::Fabric& fabric,
                                                        std::shared_ptr<collectives::cuda::Devices> devices) {
  Backends backends;
  backends.push_back(std::make_unique<collectives::ShmBackend>(memory, shm_set(config, set, membership, memory)));
  backends.push_back(std::make_unique<collectives::GlooBackend>(gloo_source(set, fabric),
                                                                gloo_options(config, set, membership.hosts())));
  std::vector<int> hosts_of_ranks;
  for (const int rank : set.ranks) hosts_of_ranks.push_back(membership.hosts().host_of(rank));
  add_device_backend(backends, config, std::move(devices), set.ranks, std::move(hosts_of_ranks),
                     topology::index(set.set_rank(membership.rank()).value()));
  return std::make_shared<collectives::BackendList>(std::move(backends));
}

std::shared_ptr<collectives::BackendList> make_local_backends(const config::RuntimeConfig& config,
                                                              const topology::ProcessSet& set,
                                                              std::shared_ptr<collectives::cuda::Devices> devices) {
  Backends backends;
  backends.push_back(std::make_unique<collectives::LocalBackend>());
  add_device_backend(backends, config, std::move(devices), set.ranks, {0}, 0);
  return std::make_shared<collectives::BackendList>(std::move(backends));
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
