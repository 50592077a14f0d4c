#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace hvd::topology {

// Who this process is in one epoch of the job. Immutable value.
// Invariants (validate()): 0 <= rank < size; 0 <= local_rank < local_size <= size; 0 <= cross_rank < cross_size <=
// size.
struct Membership {
  std::uint64_t epoch = 0;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;

  // kInvalidArgument with the numbers when an invariant does not hold.
  Status validate() const;
  bool operator==(const Membership&) const = default;
};

// More ranks than this are refused; it bounds every table that is indexed by rank.
inline constexpr int kMaxRanks = 1 << 20;

}  // namespace hvd::topology
