#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/status.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

// One collective over one contiguous piece of memory, agreed on by all members beforehand: same op, dtype, counts and
// root and scaling on every rank (alltoall: what one rank sends to another, that one expects). Fusion is the caller's
// business. Counts are elements, 64-bit. Nothing is owned.
struct CollectiveCall {
  OpType op = OpType::kAllreduce;
  DataType dtype = DataType::kFloat32;
  // allreduce: kSum, kMin, kMax, kProduct (Average is Sum + the caller's scaling); reducescatter: the same.
  ReduceOp reduce_op = ReduceOp::kSum;
  // allreduce, adasum: `input` is only read; null or `output`: in place. broadcast: in place on `output`. allgather:
  // `input` of this rank (may be inside `output` at its place). reducescatter: `input` is read only; `output` is this
  // rank's part (may be inside `input` at its place). alltoall: `input` and `output` hold the parts for and from each
  // set rank, in set-rank order; they do not overlap.
  const void* input = nullptr;
  void* output = nullptr;
  kernels::Scaling scaling{};  // allreduce, adasum, reducescatter
  std::int64_t count = 0;      // allreduce, adasum, broadcast: elements; allgather: elements of this rank's input
  // By set rank. allgather: elements contributed by each; reducescatter: elements that each gets; alltoall: elements
  // that this rank sends to each.
  std::vector<std::int64_t> rank_counts{};
  std::vector<std::int64_t> receive_counts{};  // alltoall: elements that each set rank sends to this one
  std::vector<std::int64_t> tensor_counts{};   // adasum: elements of each tensor in the memory; their sum is `count`
  int root = 0;                                // broadcast: set rank
};

// Called exactly once per started call, on any thread.
using Completion = std::function<void(Status)>;

// How the running call stands. While it waits for peers and nothing moves, two looks are equal.
struct PeerProgress {
  std::uint64_t moved = 0;
  std::vector<int> waits_for{};  // global ranks, ascending; empty: no peer holds the call up
  bool operator==(const PeerProgress&) const = default;
};

// Moves the bytes of collectives for the members of one process set. One lane thread calls it, one call after another;
// abort() may come from any thread. An exception never leaves it. After a failure every later call fails with the first
// error (sticky).
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  virtual std::string_view name() const = 0;  // "gloo", "shm", "nccl"
  // Empty when it can run the call, else the reason why not, in words with the numbers.
  virtual std::string why_not(const CollectiveCall& call) const = 0;
  // Starts the call; `done` reports the end. The memory of the call stays valid until then.
  virtual void start(const CollectiveCall& call, Completion done) = 0;
  // Makes the running call and all later ones fail with `why` (which names the peer). Thread-safe, idempotent. Whoever
  // calls it holds the backend: a lane may end because of it and let go of its own.
  virtual void abort(const Status& why) = 0;
  // Thread-safe, cheap. A backend that bounds its waits by itself may say nothing.
  virtual PeerProgress progress() const { return {}; }
};

}  // namespace hvd::collectives
