#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/engine/entry.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/recorder/flight_recorder.h"

namespace hvd::engine {

// An operation that a thread of this rank waits for and that no decision has released.
struct BlockedOn {
  std::int32_t process_set = 0;
  OpType op = OpType::kAllreduce;
  std::string name;
};

// Every operation that users have enqueued and that is not complete. The only mutex between framework threads and the
// engine. Thread-safe; owned by the session. After fail_all() it is closed: every later add returns the same error.
// Invariant: each entry is completed exactly once, its name freed before its handle is done.
class OperationTable {
 public:
  OperationTable(int rank, const topology::ProcessSetTable& sets, recorder::FlightRecorder& recorder);

  // Class A errors, or the sticky error.
  Result<HandlePtr> add(Operation operation) HVD_EXCLUDES(mutex_);
  // The same for a group: all or none.
  Result<std::vector<HandlePtr>> add_group(std::vector<Operation> operations) HVD_EXCLUDES(mutex_);

  // No more operations for this process set: its removal is about to be asked for. kInvalidArgument when there is no
  // such set, or when it is the global one; the sticky error.
  Status close_set(std::int32_t id) HVD_EXCLUDES(mutex_);

  // For the engine: what was added since the last call.
  std::vector<negotiation::Submission> fetch() HVD_EXCLUDES(mutex_);
  // Null when there is no such entry.
  EntryPtr find(negotiation::EntryId id) HVD_EXCLUDES(mutex_);
  // The same, and from now on the entry is on a lane: close() leaves it to that lane.
  EntryPtr start(negotiation::EntryId id) HVD_EXCLUDES(mutex_);

  void complete(const std::vector<EntryPtr>& entries, const Status& status) HVD_EXCLUDES(mutex_);
  void complete(negotiation::EntryId id, const Status& status) HVD_EXCLUDES(mutex_);
  // The oldest operation that a thread waits for, that no lane runs, and that was added before `then`.
  std::optional<BlockedOn> blocked(TimePoint then) HVD_EXCLUDES(mutex_);
  bool empty() HVD_EXCLUDES(mutex_);

  // Refuses everything from now on with `why` (the first reason stays) and completes what no lane is running. With a
  // `hint` their errors say which operation waited, and the hint.
  void close(const Status& why, const std::string& hint = "") HVD_EXCLUDES(mutex_);

  void apply(const std::vector<wire::SetDecision>& decisions) HVD_EXCLUDES(mutex_);
  // Names of what is in the table, in the order of submission.
  std::vector<std::string> pending() const HVD_EXCLUDES(mutex_);

  // How many joins of the global set have completed well.
  std::uint64_t joins() const { return joins_; }

 private:
  struct Slot {
    EntryPtr entry;
    bool running = false;
  };
  // Readies an operation for the queue.
  Status prepare_members(Operation& operation) const HVD_REQUIRES(mutex_);
  negotiation::Submission submission_of(Entry& entry) HVD_REQUIRES(mutex_);
  HandlePtr keep(EntryPtr entry) HVD_REQUIRES(mutex_);
  // False when it was completed before.
  bool forget(const Entry& entry) HVD_REQUIRES(mutex_);
  void finish(Entry& entry, const Status& status) HVD_EXCLUDES(mutex_);

  recorder::FlightRecorder& recorder_;
  int rank_;
  mutable Mutex mutex_;
  negotiation::TensorQueue queue_ HVD_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Slot> slots_ HVD_GUARDED_BY(mutex_);
  std::uint64_t next_id_ HVD_GUARDED_BY(mutex_) = 1;
  std::atomic<std::uint64_t> joins_{0};
  std::optional<Status> closed_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::engine
