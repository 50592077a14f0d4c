#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/cma_allreduce.h"
#include "runtime/collectives/shm/rounds.h"

namespace hvd::collectives {

// The tensors of a call: its list, or the one that it is about.
std::vector<Segment> tensors_of(const CollectiveCall& call);

// The collectives of one process set in its region: which rounds a call is cut into, and who copies or reduces what in
// them. All follows from the call, so it is the same on all members. Operands of a reduction are taken in the order of
// the members, whatever the size of the call and wherever an element lies in it: all members get the same bits, and an
// element does not depend on what it is fused with. Owned by a ShmBackend; run() is for the lane's thread.
class ShmCollectives {
 public:
  ShmCollectives(std::shared_ptr<const ShmSegment> segment, ShmRegion region, std::vector<int> ranks, int own,
                 CmaOptions cma)
      : rounds_(std::move(segment), region, std::move(ranks), own), cma_(rounds_, std::move(cma)) {}

  Status run(const CollectiveCall& call);
  Rounds& rounds() { return rounds_; }
  // Of the last call; empty: it had no data.
  std::string_view path() const { return path_; }

 private:
  Status start(const CollectiveCall& call);
  Status allreduce(const CollectiveCall& call);
  Status allreduce_small(const CollectiveCall& call, const shm::TensorStream& data);
  Status allreduce_large(const CollectiveCall& call, const shm::TensorStream& data);
  Status allreduce_staged(const CollectiveCall& call, const shm::TensorStream& data, std::uint64_t round);
  void stage(const shm::TensorStream& data, shm::Part chunk, std::uint64_t round);
  Status reduce_slice(const CollectiveCall& call, const shm::TensorStream& data, shm::Part chunk, std::uint64_t round);
  Status collect(const shm::TensorStream& data, shm::Part chunk, std::uint64_t round);
  // Where the tensors lie in memory that is shared, if all of them do, in place; else empty.
  std::vector<std::uint64_t> places_of(const CollectiveCall& call) const;
  // Tells the others, in this member's slot.
  void announce(const std::vector<std::uint64_t>& places, std::uint64_t round);
  Result<std::vector<std::byte*>> memory_of(std::size_t tensor, std::size_t bytes, std::uint64_t round) const;
  void reduce_everywhere(const CollectiveCall& call, const std::vector<std::byte*>& memory, shm::Part piece) const;
  // Reduces this member's slice of tensors that all members have announced, from and to everybody's memory.
  Status reduce_direct(const CollectiveCall& call, std::uint64_t round);
  Status adasum(const CollectiveCall& call);
  Status broadcast(const CollectiveCall& call);
  Status allgather(const CollectiveCall& call);
  Status reducescatter(const CollectiveCall& call);
  Status alltoall(const CollectiveCall& call);
  Status barrier();
  // The largest of what the members give.
  Result<std::uint64_t> largest(std::uint64_t own_value);
  // Reduces this member's data at `range` with what the others have at `offset` of their slots, to this member's
  // outputs and to `scratch` in its slot, which has operands of none.
  void reduce(const CollectiveCall& call, const shm::TensorStream& data, shm::Part range, std::uint64_t round,
              std::size_t offset, std::byte* scratch) const;

  int size() const { return rounds_.size(); }
  int own() const { return rounds_.own(); }

  Rounds rounds_;
  CmaAllreduce cma_;
  std::string_view path_;
  std::unique_ptr<std::byte[]> scratch_;  // Adasum's; kept, as fresh pages cost more than the work on them
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hvd::collectives
