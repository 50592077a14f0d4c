#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/host_groups.h"

namespace hvd::collectives {

// Allreduce, reducescatter, allgather and broadcast host by host: inside hosts to and from slices, between hosts each
// slice by its owners, all slices at once. So what a host sends does not depend on how many ranks it has, nor on how
// ranks are dealt out to hosts. Made of backends of parts of the set, whose calls end within start(); so do this one's.
// Large calls go in pieces, and what is between hosts has a thread of its own meanwhile. It keeps its memory between
// calls.
class HierarchicalBackend final : public HostBackend {
 public:
  explicit HierarchicalBackend(HostGroups groups);
  ~HierarchicalBackend() override;

  std::string_view name() const override { return "hierarchical"; }
  std::string why_not(const CallTraits& call) const override;
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status& why) override;
  PeerProgress progress() const override;

  // For who does the steps inside hosts elsewhere. Confined to the set's lane, as calls are.
  const HostGroups& groups() const { return groups_; }
  // As of HostGroups.
  std::vector<std::int64_t> slices_of(DataType dtype, std::int64_t count) const;
  // An allreduce among the owners of this member's slice. Requires: it owns one.
  Status reduce_across(const CollectiveCall& slice) const;

 private:
  // What is done with each piece of a call, by its number: inside the host, between hosts by those who own a slice,
  // inside the host again.
  struct Steps {
    std::function<Status(std::size_t)> before;
    std::function<Status(std::size_t)> across;
    std::function<Status(std::size_t)> after;
  };
  struct Across;
  class AcrossThread;
  struct Piece;
  const HostGroups::Limit* limit_of(OpType op) const;
  Status run(const CollectiveCall& call);

  // hierarchical_pieces.cc
  // How many pieces a call of so many bytes has, of which `sharers` bring a part each. The same on all members.
  std::int64_t pieces_of(std::uint64_t bytes, std::size_t sharers) const;
  Status in_pieces(std::size_t pieces, const Steps& steps);
  Status run_steps(const Steps& steps, std::deque<Across>& pieces);
  void begin_across(const Steps& steps, std::deque<Across>& pieces, std::size_t piece);

  // hierarchical_allreduce.cc: tensors that may be cut anywhere
  Status allreduce(const CollectiveCall& call);
  Status broadcast(const CollectiveCall& call);
  std::vector<Piece> cut(const CollectiveCall& call, std::int64_t pieces) const;
  Status scatter(const CollectiveCall& call, const Piece& piece) const;
  Status gather(const CollectiveCall& call, const Piece& piece) const;

  // hierarchical_parts.cc: tensors that are made of a part of each rank
  Status reducescatter(const CollectiveCall& call);
  Status scatter_parts(const CollectiveCall& call, const PartsLayout& layout, std::vector<std::byte>& slice);
  Status hand_out(const CollectiveCall& call, const PartsLayout& layout, const std::byte* own);
  Status allgather(const CollectiveCall& call);
  Status collect_parts(const CollectiveCall& call, const PartsLayout& layout, std::vector<std::byte>& slice);
  Status spread(const CollectiveCall& call, const PartsLayout& layout, const std::byte* own);

  // hierarchical_calls.cc: of parts of the set
  bool takes_lists(const CollectiveCall& local, std::uint64_t bytes) const;
  Status run_locally(const CollectiveCall& part, std::uint64_t bytes) const;
  Status run_across(const CollectiveCall& part, std::uint64_t bytes) const;
  // Of `part`, its op, type and reduction set: gathers what each member of the host has into `whole`.
  Status gather_locally(CollectiveCall part, const void* own, void* whole, std::vector<std::int64_t> counts) const;

  const HostGroups groups_;
  std::unique_ptr<AcrossThread> across_thread_;    // from the first call in pieces on
  std::vector<std::byte> packed_;                  // a piece by slices, on the lane's thread only
  std::array<std::vector<std::byte>, 2> slices_;   // of the piece between hosts and of the one after it or before
  std::array<std::vector<std::byte>, 2> results_;  // likewise
};

}  // namespace hvd::collectives
