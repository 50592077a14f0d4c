#include "runtime/engine/backends.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/collectives/connection_trial.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/local_backend.h"
#include "runtime/collectives/nccl/device_backend.h"
#include "runtime/transport/data/message_context.h"

namespace hvd::engine {

namespace {

// Below, the two meetings inside a host cost more than what is not sent between hosts.
constexpr std::uint64_t kHierarchicalBytes = 64U << 10;
// Added to a set's context id for the contexts of its parts. Sets count from 0, one for each that an epoch has.
constexpr std::uint64_t kLocalContexts = std::uint64_t{1} << 62;
constexpr std::uint64_t kAcrossContexts = std::uint64_t{1} << 63;

// Adasum's, but for the numbers of the ranks.
bool wants_hierarchy(const config::RuntimeConfig& config, const topology::HostMap& hosts) {
  return config.hierarchical_allreduce.value_or(false) && hosts.hosts() > 1 && hosts.is_homogeneous() &&
         hosts.ranks_on(0).size() > 1;
}

collectives::GlooBackendOptions gloo_options(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                                             const topology::HostMap& hosts) {
  collectives::GlooBackendOptions options;
  if (set.id == kGlobalProcessSet && wants_hierarchy(config, hosts) && hosts.is_host_by_host()) {
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
  source.connect = [&fabric, ranks = set.ranks](std::span<const transport::ExpectedMessage> messages) {
    std::vector<transport::ExpectedMessage> by_rank(messages.begin(), messages.end());
    for (transport::ExpectedMessage& message : by_rank) message.peer = ranks[static_cast<std::size_t>(message.peer)];
    return fabric.connect_data(by_rank);
  };
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
          .deterministic = config.deterministic,
          .cma = {.use = config.shm_cma}};
}

using Backends = std::vector<std::unique_ptr<collectives::CollectiveBackend>>;

// The members of the set by host, in the order of the hosts.
std::vector<std::vector<int>> members_by_host(const topology::ProcessSet& set, const topology::HostMap& hosts) {
  std::vector<std::vector<int>> members(static_cast<std::size_t>(hosts.hosts()));
  for (const int rank : set.ranks) members[static_cast<std::size_t>(hosts.host_of(rank))].push_back(rank);
  std::erase_if(members, [](const std::vector<int>& host) { return host.empty(); });
  return members;
}

std::string why_no_groups(const std::vector<std::vector<int>>& members) {
  if (members.size() == 1) return "all ranks are on one host";
  if (std::ranges::max(members, {}, &std::vector<int>::size).size() == 1) return "no host has two of its ranks";
  return "";
}

// An option's meaning: host by host where it pays, always, or never.
collectives::HostGroups::Limit limit_of(const std::optional<bool>& option, const char* name) {
  if (option == false) return {.why_not = std::string(name) + "=0"};
  return {.smallest = option ? 0 : kHierarchicalBytes};
}

// A set's members on one host, or those with one slice. Its shared memory is the set's: sets on one host alone use it
// otherwise.
std::shared_ptr<collectives::BackendList> make_part(const config::RuntimeConfig& config,
                                                    const topology::ProcessSet& set, std::uint64_t contexts,
                                                    std::vector<int> ranks, const topology::Membership& membership,
                                                    const collectives::SharedMemory& memory,
                                                    transport::Fabric& fabric) {
  constexpr std::int32_t kNoSet = -1;  // it has no id of its own
  topology::ProcessSet part{kNoSet, set.context_id, std::move(ranks)};
  Backends backends;
  backends.push_back(std::make_unique<collectives::ShmBackend>(memory, shm_set(config, part, membership, memory)));
  part.context_id |= contexts;
  backends.push_back(std::make_unique<collectives::GlooBackend>(gloo_source(part, fabric)));
  return std::make_shared<collectives::BackendList>(std::move(backends));
}

collectives::HostGroups host_groups(const config::RuntimeConfig& config, const topology::ProcessSet& set,
                                    const topology::Membership& membership, const collectives::SharedMemory& memory,
                                    transport::Fabric& fabric) {
  const std::vector<std::vector<int>> members = members_by_host(set, membership.hosts());
  collectives::HostGroups groups;
  groups.why_not = why_no_groups(members);
  if (!groups.why_not.empty()) return groups;
  if (!config.torus_allreduce) {  // else always: two dimensions are the hosts and the slices
    groups.reductions = limit_of(config.hierarchical_allreduce, "HOROVOD_HIERARCHICAL_ALLREDUCE");
  }
  if (config.deterministic && groups.reductions.why_not.empty()) {
    groups.reductions.why_not = "HOROVOD_DETERMINISTIC: its sums would depend on who shares a host";
  }
  groups.allgathers = limit_of(config.hierarchical_allgather, "HOROVOD_HIERARCHICAL_ALLGATHER");
  // Broadcasts have no option of their own; who turns the reductions off turns them off, too.
  const bool off = config.hierarchical_allreduce == false;
  groups.broadcasts = limit_of(off ? config.hierarchical_allreduce : std::nullopt, "HOROVOD_HIERARCHICAL_ALLREDUCE");
  groups.slices = static_cast<int>(std::ranges::min(members, {}, &std::vector<int>::size).size());
  std::vector<int> local;
  for (const auto& host : members) {
    groups.hosts.emplace_back().reserve(host.size());
    for (const int rank : host) groups.hosts.back().push_back(topology::index(set.set_rank(rank).value()));
    if (std::ranges::find(host, membership.rank()) == host.end()) continue;
    local = host;
    groups.host = static_cast<int>(groups.hosts.size()) - 1;
  }
  groups.local_rank = static_cast<int>(std::ranges::find(local, membership.rank()) - local.begin());
  if (groups.local_size() > 1) {
    groups.local = make_part(config, set, kLocalContexts, std::move(local), membership, memory, fabric);
  }
  if (groups.local_rank >= groups.slices) return groups;
  std::vector<int> across;
  across.reserve(members.size());
  for (const auto& host : members) across.push_back(host[static_cast<std::size_t>(groups.local_rank)]);
  std::ranges::sort(across);
  groups.across = make_part(config, set, kAcrossContexts, std::move(across), membership, memory, fabric);
  return groups;
}

// The last two of the list: host by host, then Gloo. Where the number of connections is to be found out, the one that
// large allreduces go to tries.
void add_host_backends(Backends& backends, const config::RuntimeConfig& config, const topology::ProcessSet& set,
                       const topology::Membership& membership,
                       std::unique_ptr<collectives::HierarchicalBackend> hierarchical, transport::Fabric& fabric) {
  auto flat = std::make_unique<collectives::GlooBackend>(gloo_source(set, fabric),
                                                         gloo_options(config, set, membership.hosts()));
  collectives::GlooBackend* const agreer = flat.get();
  const bool is_flat = !hierarchical->why_not({.bytes = kHierarchicalBytes}).empty();
  backends.push_back(std::move(hierarchical));
  backends.push_back(std::move(flat));
  if (config.sockets_per_peer != 0 || set.id != kGlobalProcessSet || membership.hosts().hosts() == 1) return;
  auto& tries = is_flat ? backends.back() : *(backends.end() - 2);
  tries = std::make_unique<collectives::TrialBackend>(std::move(tries), *agreer, set.size(),
                                                      [&fabric](int number) { fabric.use_sockets(number); });
}

// NCCL has ways of its own between hosts: ours are for those who ask for them.
const collectives::HierarchicalBackend* device_hosts(const config::RuntimeConfig& config,
                                                     const collectives::HierarchicalBackend& by_host) {
  const collectives::HostGroups& groups = by_host.groups();
  const bool is_wanted = config.hierarchical_allreduce == true;
  return is_wanted && groups.why_not.empty() && groups.reductions.why_not.empty() ? &by_host : nullptr;
}

// What is in device memory and NCCL cannot do goes through the backends that are there already.
void add_device_backend(Backends& backends, const config::RuntimeConfig& config,
                        const std::shared_ptr<collectives::cuda::Devices>& devices, const std::vector<int>& ranks,
                        std::vector<int> hosts_of_ranks, int set_rank,
                        const collectives::HierarchicalBackend* by_host = nullptr) {
  std::vector<collectives::CollectiveBackend*> hosts;
  hosts.reserve(backends.size());
  for (const auto& backend : backends) hosts.push_back(backend.get());
  collectives::nccl::DeviceOptions options{config.nccl_library,
                                           config.nccl_start_limit,
                                           config.no_progress_limit,
                                           ranks,
                                           std::move(hosts_of_ranks),
                                           set_rank,
                                           config.deterministic,
                                           config.batch_copies,
                                           config.nccl_register,
                                           config.nccl_shares_gpu,
                                           config.nccl_ranks_per_id,
                                           config.tls,
                                           by_host};
  backends.push_back(std::make_unique<collectives::nccl::DeviceBackend>(devices, std::move(hosts), std::move(options)));
}

}  // namespace

std::shared_ptr<collectives::BackendList> make_backends(const config::RuntimeConfig& config,
                                                        const topology::ProcessSet& set,
                                                        const topology::Membership& membership,
                                                        const collectives::SharedMemory& memory,
                                                        transport::Fabric& fabric,
                                                        const std::shared_ptr<collectives::cuda::Devices>& devices) {
  Backends backends;
  backends.push_back(std::make_unique<collectives::ShmBackend>(memory, shm_set(config, set, membership, memory)));
  auto hierarchical =
      std::make_unique<collectives::HierarchicalBackend>(host_groups(config, set, membership, memory, fabric));
  const collectives::HierarchicalBackend* const by_host = device_hosts(config, *hierarchical);
  add_host_backends(backends, config, set, membership, std::move(hierarchical), fabric);
  std::vector<int> hosts_of_ranks;
  hosts_of_ranks.reserve(set.ranks.size());
  for (const int rank : set.ranks) hosts_of_ranks.push_back(membership.hosts().host_of(rank));
  add_device_backend(backends, config, devices, set.ranks, std::move(hosts_of_ranks),
                     topology::index(set.set_rank(membership.rank()).value()), by_host);
  return std::make_shared<collectives::BackendList>(std::move(backends), devices->launch_order());
}

// With HOROVOD_DETERMINISTIC sums of more than two members are Gloo's, whose order differs.
std::shared_ptr<collectives::ExchangeSlots> make_slots(const config::RuntimeConfig& config,
                                                       const topology::ProcessSet& set,
                                                       const topology::Membership& membership,
                                                       const collectives::SharedMemory& memory) {
  const collectives::ShmSet shared = shm_set(config, set, membership, memory);
  if (!shared.why_not.empty() || (shared.deterministic && set.size() > 2)) return nullptr;
  return std::make_shared<collectives::ExchangeSlots>(memory.segment, memory.segment->region(set.context_id),
                                                      set.size(), shared.own, memory.arena);
}

std::shared_ptr<collectives::BackendList> make_local_backends(
    const config::RuntimeConfig& config, const topology::ProcessSet& set,
    const std::shared_ptr<collectives::cuda::Devices>& devices) {
  Backends backends;
  backends.push_back(std::make_unique<collectives::LocalBackend>());
  add_device_backend(backends, config, devices, set.ranks, {0}, 0);
  return std::make_shared<collectives::BackendList>(std::move(backends), devices->launch_order());
}

void warn_of_flat_adasum(const config::RuntimeConfig& config, const topology::HostMap& hosts) {
  if (!wants_hierarchy(config, hosts) || hosts.is_host_by_host()) return;
  int rank = 1;
  while (hosts.host_of(rank) >= hosts.host_of(rank - 1)) ++rank;
  HVD_LOG(kWarning,
          "HOROVOD_HIERARCHICAL_ALLREDUCE: Adasum combines all ranks, as they are not numbered host by host: rank ",
          std::to_string(rank), " is on the host of rank ", std::to_string(hosts.ranks_on(hosts.host_of(rank)).front()),
          ", rank ", std::to_string(rank - 1), " between them is on another");
}

}  // namespace hvd::engine
