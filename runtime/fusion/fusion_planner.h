#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/wire/messages.h"

namespace hvd::fusion {

// Tensors that run as one collective; `items` index the planner's input, ascending. A batch of one needs no buffer.
struct Batch {
  std::vector<std::size_t> items;
  // Where each item begins in the fusion buffer, in bytes: allreduce, adasum and reducescatter; empty for other kinds.
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;  // padded size of all items (allgather: of all ranks); 0 for errors, alltoall, barrier, join
};

// Divides the responses of one process set in one decision into batches. Pure, and the same on every
// rank because its input is. Order: a batch starts with the first response left; later ones join it when they fuse with
// it and still fit; others are skipped, keeping their order, as long as batch + skipped bytes <= threshold.
// Invariants: each index is in exactly one batch; a batch of several items has bytes <= limits.threshold; errors,
// broadcasts, alltoalls, barriers and joins run alone.
// A reduction or allgather of `alone_bytes` or more runs alone as well, in its own memory: copying it would cost more
// than the messages that fusion saves. On GPUs that takes 16 MiB at least.
std::vector<Batch> plan(std::span<const wire::Response* const> responses, const wire::FusionLimits& limits,
                        std::uint64_t alone_bytes = std::numeric_limits<std::uint64_t>::max());

// The `alone_bytes` of a process set with so many members.
std::uint64_t alone_bytes(int members);

// The threshold that the coordinator announces: on homogeneous jobs rounded up to a multiple of local_size * 8 * 64, so
// that a buffer divides evenly among the ranks of a host; 0 stays 0.
std::uint64_t round_threshold(std::uint64_t threshold, int local_size, bool homogeneous);

}  // namespace hvd::fusion
