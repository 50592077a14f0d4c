#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/backend_list.h"

namespace hvd::collectives {

// A process set on several hosts, as one of its members sees it. Members are numbered by their places on their host;
// the first `slices` of each host own a slice of every tensor each, and those of all hosts that own the same one are a
// group.
struct HostGroups {
  // Which calls are taken; the same on all members.
  struct Limit {
    std::string why_not{};       // not empty: none
    std::uint64_t smallest = 0;  // bytes
  };

  int host = 0;                           // this member's place in `hosts`
  std::vector<std::vector<int>> hosts{};  // set ranks by host, ascending in each
  int slices = 1;                         // as many as the host with the fewest members has
  int local_rank = 0;
  std::shared_ptr<BackendList> local{};   // of the members on this host; null when there is one
  std::shared_ptr<BackendList> across{};  // of the group, by set rank; null when this member owns no slice
  std::string why_not{};                  // not empty: they have no such groups, and nothing else counts
  Limit reductions{};                     // allreduce, reducescatter
  Limit allgathers{};
  Limit broadcasts{};
  std::uint64_t owner_bytes = 512U << 10;  // each owner on each host has at least so much of a piece of an allreduce

  int local_size() const { return static_cast<int>(hosts[static_cast<std::size_t>(host)].size()); }
};

// Allreduce, reducescatter, allgather and broadcast host by host: inside hosts to and from slices, between hosts each
// slice by its owners, all slices at once. So what a host sends does not depend on how many ranks it has, nor on how
// ranks are dealt out to hosts. Made of backends of parts of the set, whose calls end within start(); so do this one's.
// Large allreduces go in pieces, and what is between hosts has a thread of its own meanwhile. It keeps its memory
// between calls.
class HierarchicalBackend final : public CollectiveBackend {
 public:
  explicit HierarchicalBackend(HostGroups groups);
  ~HierarchicalBackend() override;

  std::string_view name() const override { return "hierarchical"; }
  std::string why_not(const CallTraits& call) const override;
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status& why) override;
  PeerProgress progress() const override;
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t bytes) override {
    return host_memory().allocate(bytes);
  }

  // For who does the steps inside hosts elsewhere. Confined to the set's lane, as calls are.
  const HostGroups& groups() const { return groups_; }
  // The elements of each local member's slice of a tensor of `count`; none for members without a slice.
  std::vector<std::int64_t> slices_of(DataType dtype, std::int64_t count) const;
  // An allreduce among the owners of this member's slice. Requires: it owns one.
  Status reduce_across(const CollectiveCall& slice) const;

 private:
  struct Layout;
  struct Piece;
  class AcrossThread;
  const HostGroups::Limit* limit_of(OpType op) const;
  bool owns_slice() const { return groups_.local_rank < groups_.slices; }

  // hierarchical_calls.cc
  Status run(const CollectiveCall& call);
  Status broadcast(const CollectiveCall& call) const;
  Status reducescatter(const CollectiveCall& call);
  Status allgather(const CollectiveCall& call);
  Status spread(const CollectiveCall& call, const Layout& layout, const std::byte* own) const;
  // Of `part`, its op, type and reduction set: gathers what each member of the host has into `whole`.
  Status gather_locally(CollectiveCall part, const void* own, void* whole, std::vector<std::int64_t> counts) const;

  // Reduces to each member of the host what is its own.
  Status scatter_locally(const CollectiveCall& part) const;

  // hierarchical_allreduce.cc
  Status allreduce(const CollectiveCall& call);
  std::deque<Piece> cut(const CollectiveCall& call) const;
  Status reduce_pieces(const CollectiveCall& call, std::deque<Piece>& pieces);
  Status scatter(const CollectiveCall& call, const Piece& piece) const;
  void begin_across(Piece& piece, std::size_t pieces);

  const HostGroups groups_;
  std::unique_ptr<AcrossThread> across_thread_;  // from the first call in pieces on
  std::vector<std::byte> packed_;                // a tensor by slices
  std::vector<std::byte> slice_;
};

}  // namespace hvd::collectives
