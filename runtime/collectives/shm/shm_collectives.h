#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/rounds.h"

namespace hvd::collectives {

// The collectives of one process set in its region: which rounds a call is cut into, and who copies or reduces what in
// them. All follows from the call, so it is the same on all members. Operands of a reduction are taken in the order of
// the members, whatever the size of the call and wherever an element lies in it: all members get the same bits, and an
// element does not depend on what it is fused with. Owned by a ShmBackend; run() is for the lane's thread.
class ShmCollectives {
 public:
  ShmCollectives(std::shared_ptr<const ShmSegment> segment, ShmRegion region, std::vector<int> ranks, int own)
      : rounds_(std::move(segment), region, std::move(ranks), own),
        operands_(static_cast<std::size_t>(rounds_.size())) {}

  Status run(const CollectiveCall& call);
  Rounds& rounds() { return rounds_; }

 private:
  Status allreduce(const CollectiveCall& call);
  Status allreduce_small(const CollectiveCall& call);
  Status allreduce_large(const CollectiveCall& call);
  Status collect(std::byte* output, std::size_t bytes, std::uint64_t round);
  Status broadcast(const CollectiveCall& call);
  Status allgather(const CollectiveCall& call);
  Status reducescatter(const CollectiveCall& call);
  Status alltoall(const CollectiveCall& call);
  Status barrier();
  // The largest of what the members give.
  Result<std::uint64_t> largest(std::uint64_t own);
  // operands_ = this member's, and what the others have at `offset` in their slots.
  void take_operands(const std::byte* mine, std::uint64_t round, std::size_t offset);
  // Reduces operands_ to `out`, `n` elements, over `scratch` in this member's slot, whose elements are operands of
  // none. Leaves the result there too.
  void reduce(const CollectiveCall& call, std::byte* scratch, std::byte* out, std::int64_t n) const;

  int size() const { return rounds_.size(); }
  int own() const { return rounds_.own(); }

  Rounds rounds_;
  std::vector<const std::byte*> operands_;  // by member, of the reduction under way
};

}  // namespace hvd::collectives
