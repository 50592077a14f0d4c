#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/status.h"
#include "runtime/collectives/memory.h"

namespace hvd::collectives {

enum class MemoryKind : std::uint8_t { kHost, kDevice };

// All that the choice of a backend may depend on: what every member of the process set knows of a call before it
// starts, with the same values.
struct CallTraits {
  OpType op = OpType::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;  // allreduce, reducescatter; Average is a sum that is scaled
  MemoryKind memory = MemoryKind::kHost;
  std::uint64_t bytes = 0;  // of all tensors (allgather: of all ranks); alltoall: 0, a rank knows only its own
};

class LaunchTurn;
namespace cuda {
class Event;
// Whoever owns memory that a stream still uses.
using Owners = std::vector<std::shared_ptr<const void>>;
}  // namespace cuda

// Which devices a call in device memory runs on.
struct DeviceUse {
  int device = kCpuDevice;        // this rank's; kCpuDevice: it has joined, so that nothing says which one
  std::uint64_t devices_key = 0;  // equal in calls for which every member's device is the same; agreed
  // Come when the tensors hold what they are to give and may be written.
  std::vector<std::shared_ptr<cuda::Event>> ready{};
  // May be empty. Called inside start(), at most once, when all that the call does is in streams of the GPU: the
  // results are there when the event has come. The call completes then, as others do.
  std::function<void(const std::shared_ptr<cuda::Event>& end)> enqueued{};
  // May be empty. The owners of the tensors, for who ends the call before the streams have run.
  std::function<cuda::Owners()> owners{};
  cuda::Owners owners_now() const { return owners ? owners() : cuda::Owners(); }
  // The call's place among all that this rank starts on GPUs; null: it has none.
  std::shared_ptr<LaunchTurn> turn{};
};

// One tensor of a call that is a list of tensors.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;                   // as CollectiveCall::count
  std::vector<std::int64_t> rank_counts{};  // as CollectiveCall::rank_counts
};

// One collective, agreed on by all members beforehand: same op, dtype, counts, root, scaling and memory kind on every
// rank (alltoall: what one rank sends to another, that one expects). Counts are elements, 64-bit. Nothing is owned.
struct CollectiveCall {
  OpType op = OpType::kAllreduce;
  DataType dtype = DataType::kFloat32;
  // allreduce: kSum, kMin, kMax, kProduct (Average is Sum + the caller's scaling); reducescatter: the same.
  ReduceOp reduce_op = ReduceOp::kSum;
  // allreduce, adasum: `input` is only read; null or equal to `output`: in place. broadcast: in place on `output`.
  // allgather: `input` of this rank (may lie inside `output` where this rank's part is). reducescatter: `input` is only
  // read; `output` is this rank's part (may lie inside `input` where that part is). alltoall: `input` and `output` hold
  // the parts for and from each set rank, in set-rank order; they do not overlap.
  const void* input = nullptr;
  void* output = nullptr;
  kernels::Scaling scaling{};  // allreduce, adasum, reducescatter
  std::int64_t count = 0;      // allreduce, adasum, broadcast: elements; allgather: elements of this rank's input
  // By set rank. allgather: elements contributed by each; reducescatter: elements that each gets; alltoall: elements
  // that this rank sends to each.
  std::vector<std::int64_t> rank_counts{};
  std::vector<std::int64_t> receive_counts{};  // alltoall: elements that each set rank sends to this one
  std::int64_t most_sent = 0;                  // alltoall: elements of the member that sends most; 0: not known
  std::vector<std::int64_t> tensor_counts{};   // adasum: elements of each tensor in the memory; their sum is `count`
  int root = 0;                                // broadcast: set rank
  MemoryKind memory = MemoryKind::kHost;       // of every pointer here
  // In device memory tensors come as they lie, whatever the lane does to those of the host: a broadcast's root gives
  // `input` apart from `output`, and a rank that has joined has null for both, which stands for zeros.
  DeviceUse use{};
  // Not empty: allreduce, adasum, reducescatter or allgather of each of these tensors, where they lie, and the pointers
  // and counts above mean nothing. Only for a backend that takes lists (BackendTraits).
  std::vector<Segment> segments{};
};

// Called exactly once per started call, on any thread, holding no lock that start() or abort() takes.
using Completion = std::function<void(Status)>;

// How the running calls stand. While they wait for peers and nothing moves, two looks are equal.
struct PeerProgress {
  std::uint64_t moved = 0;
  std::vector<int> waits_for{};  // global ranks, ascending; empty: no peer holds the call up
  bool operator==(const PeerProgress&) const = default;
};

// How a backend wants to be called.
struct BackendTraits {
  // So many calls may be started and not complete. With two, the lane unpacks the call before the running one and packs
  // the call after it, in two staging buffers. It pays where calls run on another thread or on a device.
  int queue_depth = 1;
  // Several tensors come as CollectiveCall::segments instead of packed into one piece of memory. Needed of a backend
  // that takes device memory.
  bool takes_segments = false;
};

// Moves the bytes of collectives for the members of one process set; one of the set's BackendList.
//
// Life: made by the engine for one set, without waiting for anybody: connections, communicators and segments are made
// in the first call. Owned by the list. Destroyed by the set's lane on its thread (or by a thread that is aborting it
// at that moment), after the last call has completed and all staging memory is given back.
//
// Threads: why_not() and traits() are pure and may be called by any thread. start(), memory() and allocate_staging()
// are called by the lane's thread alone. abort() and progress() come from any thread at any time.
//
// Calls: they begin in the order of start(), which is the same on all members; at most traits().queue_depth of them are
// not complete. A call completes once, inside start() or later on any thread; its memory is valid until then. Before an
// alltoall the members exchange what each will get, by an alltoall of int64 in host memory on the same backend.
//
// Failure: no exception leaves a backend. A call that it took is never given to another backend, because other members
// may have begun. After a failure or an abort the calls under way and all later ones fail soon, with the first error.
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  virtual std::string_view name() const = 0;  // "gloo", "shm", "nccl"
  // Empty when it takes such calls, else the reason why it does not, in words with the numbers: then the next backend
  // is asked. Must follow from the traits and from what all ranks agreed on when they joined, so that all members
  // choose the same backend.
  virtual std::string why_not(const CallTraits& call) const = 0;
  virtual BackendTraits traits() const { return {}; }  // the same on all members
  // Starts the call; `done` reports its end.
  virtual void start(const CollectiveCall& call, Completion done) = 0;
  // How tensors of a kind of memory are packed for it. Requires: it takes calls of this kind, or gets them before an
  // alltoall; not asked for device memory.
  virtual const Memory& memory(MemoryKind kind) const = 0;
  // Memory in which its fused calls are cheapest, for the lane to pack tensors into, aligned like Memory::allocate;
  // null when there is none. Not asked for device memory.
  virtual std::shared_ptr<void> allocate_staging(MemoryKind kind, std::size_t bytes) = 0;
  // Makes the calls under way and all later ones fail with `why` (which names the peer), as far as they need peers.
  // Idempotent. The caller holds the backend: a lane may end because of the abort and release its own reference.
  virtual void abort(const Status& why) = 0;
  // Which of its ways the last call that has completed inside start() went, for the log; empty: it has no choice. For
  // the lane's thread. Members of a set may learn only in a call which way it goes.
  virtual std::string_view path() const { return {}; }
  // Cheap. A backend that bounds its waits by itself may report nothing.
  virtual PeerProgress progress() const { return {}; }
};

// One that takes calls in host memory alone, which CPUs work on.
class HostBackend : public CollectiveBackend {
 public:
  const Memory& memory(MemoryKind) const final { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t bytes) final { return host_memory().allocate(bytes); }

 protected:
  // The reasons of why_not() that all of them have: the memory, and what the kernels cannot do.
  static std::string why_not_in_host_memory(const CallTraits& call);
  static std::string why_no_reduction(const CallTraits& call);
  // An error in words when why_not() has a reason; `bytes` as of CallTraits.
  Status check(const CollectiveCall& call, std::uint64_t bytes = 0) const;
};

}  // namespace hvd::collectives
