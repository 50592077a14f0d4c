#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/collectives/hierarchical_backend.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {

// The ranks of each host.
using Hosts = std::vector<std::vector<int>>;

inline std::shared_ptr<BackendList> list_of(std::unique_ptr<CollectiveBackend> backend) {
  std::vector<std::unique_ptr<CollectiveBackend>> list;
  list.push_back(std::move(backend));
  return std::make_shared<BackendList>(std::move(list));
}

using Refuse = std::function<Status()>;

// Takes one piece of memory, as Gloo, which stands in inside a host without shared memory; and no call that `refuse`
// has an error for.
class WithoutLists final : public CollectiveBackend {
 public:
  explicit WithoutLists(std::unique_ptr<CollectiveBackend> backend, Refuse refuse = Status::ok)
      : backend_(std::move(backend)), refuse_(std::move(refuse)) {}
  std::string_view name() const override { return "without lists"; }
  std::string why_not(const CallTraits& call) const override { return backend_->why_not(call); }
  void start(const CollectiveCall& call, Completion done) override {
    const Status refused = call.segments.empty() ? refuse_() : Status::internal("a list");
    refused.is_ok() ? backend_->start(call, std::move(done)) : done(refused);
  }
  const Memory& memory(MemoryKind kind) const override { return backend_->memory(kind); }
  std::shared_ptr<void> allocate_staging(MemoryKind kind, std::size_t bytes) override {
    return backend_->allocate_staging(kind, bytes);
  }
  void abort(const Status& why) override { backend_->abort(why); }

 private:
  std::unique_ptr<CollectiveBackend> backend_;
  Refuse refuse_;
};

struct GroupsOptions {
  bool lists = true;
  std::uint64_t owner_bytes = 64;  // so small that calls of few elements have several pieces
  std::uint64_t first_region = 0;
  Refuse refuse_across = Status::ok;
};

// Hosts that are groups of threads, with shared memory between them, too: each host and each slice has a region of its
// own.
inline HostGroups groups_of(const Hosts& hosts, const ShmRanks& ranks, int rank, const GroupsOptions& options = {}) {
  std::vector<int> members;
  for (const auto& host : hosts) members.insert(members.end(), host.begin(), host.end());
  std::ranges::sort(members);
  HostGroups groups{.owner_bytes = options.owner_bytes};
  for (const auto& host : hosts) {
    std::vector<int>& set_ranks = groups.hosts.emplace_back();
    for (const int member : host) {
      set_ranks.push_back(static_cast<int>(std::ranges::find(members, member) - members.begin()));
    }
  }
  groups.slices = static_cast<int>(std::ranges::min(hosts, {}, &std::vector<int>::size).size());
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const auto at = std::ranges::find(hosts[host], rank);
    if (at == hosts[host].end()) continue;
    groups.host = static_cast<int>(host);
    groups.local_rank = static_cast<int>(at - hosts[host].begin());
    if (hosts[host].size() < 2) continue;
    std::unique_ptr<CollectiveBackend> local = ranks.backend(hosts[host], rank, options.first_region + host);
    groups.local = list_of(options.lists ? std::move(local) : std::make_unique<WithoutLists>(std::move(local)));
  }
  if (groups.local_rank >= groups.slices) return groups;
  std::vector<int> owners;
  for (const auto& host : hosts) owners.push_back(host[static_cast<std::size_t>(groups.local_rank)]);
  std::ranges::sort(owners);  // as the members of any set
  const std::uint64_t region = options.first_region + hosts.size() + static_cast<std::uint64_t>(groups.local_rank);
  groups.across = list_of(std::make_unique<WithoutLists>(ranks.backend(owners, rank, region), options.refuse_across));
  return groups;
}

}  // namespace hvd::collectives
