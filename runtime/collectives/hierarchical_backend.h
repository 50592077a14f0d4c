#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend_list.h"

namespace hvd::collectives {

// A process set on several hosts, as one of its members sees it. The members of a host are numbered by their places
// there; the first `slices` of each host have a slice of every tensor each, and those of all hosts that have the same
// one are a group.
struct HostGroups {
  int local_rank = 0;
  int local_size = 1;
  int slices = 1;                       // as many as the host with the fewest members has
  std::shared_ptr<BackendList> local;   // of the members on this host; null when there is one
  std::shared_ptr<BackendList> across;  // of the members with this one's slice; null when it has none
  // The same on all members. Not empty: they have no such groups, and nothing else counts.
  std::string why_not;
  std::uint64_t smallest = 0;  // bytes of a call that it takes
};

// Allreduce in three steps: the members of a host reduce each slice to its owner, the owners of a slice reduce it
// between hosts, all at once, and the members of a host gather all slices. So what a host sends does not depend on how
// many ranks it has. Made of backends of parts of the set, whose calls end within start(); so do this one's.
class HierarchicalBackend final : public CollectiveBackend {
 public:
  explicit HierarchicalBackend(HostGroups groups) : groups_(std::move(groups)) {}

  std::string_view name() const override { return "hierarchical"; }
  std::string why_not(const CallTraits& call) const override;
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status& why) override;
  PeerProgress progress() const override;
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t bytes) override {
    return host_memory().allocate(bytes);
  }

 private:
  Status run(const CollectiveCall& call) const;

  const HostGroups groups_;
};

}  // namespace hvd::collectives
