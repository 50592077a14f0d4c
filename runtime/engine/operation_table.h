#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/engine/work_tally.h"
#include "runtime/negotiation/worker.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

// An operation that a thread of this rank waits for and that no decision has released.
struct BlockedOn {
  std::int32_t process_set = 0;
  OpType op = OpType::kAllreduce;
  std::string name;
};

// Every operation that users have enqueued and that is not complete, and the published table of process sets that they
// are checked against. The only mutex between framework threads and the engine. Thread-safe; owned by the session.
// After close() every later add returns the same error. Invariants: each operation is completed exactly once, its name
// freed before its handle is done; at most one operation is pending per set and name, and one join per set.
class OperationTable {
 public:
  OperationTable(int rank, topology::ProcessSets sets, recorder::FlightRecorder& recorder);

  // The caller's mistakes that one rank can see alone (class A), or the sticky error. `take` (may be empty) is asked
  // whether the operation is taken care of elsewhere; else it is submitted.
  using Take = std::function<bool(std::span<const PendingOperationPtr>)>;
  Result<HandlePtr> add(Operation&& operation, const Take& take = {}) HVD_EXCLUDES(mutex_);
  // The same for a group: all or none.
  Result<std::vector<HandlePtr>> add_group(std::vector<Operation>&& operations, const Take& take = {})
      HVD_EXCLUDES(mutex_);
  // For the engine to fetch, an operation, or those of a group, which was taken care of elsewhere until now. `renew`:
  // see negotiation::OwnRequest.
  void submit(std::span<const PendingOperationPtr> pending, bool renew) HVD_EXCLUDES(mutex_);

  // No more operations for this process set: its removal is about to be asked for. kInvalidArgument when there is no
  // such set, or when it is the global one; the sticky error.
  Status close_set(std::int32_t id) HVD_EXCLUDES(mutex_);

  // As the last decision that changed them left them.
  topology::ProcessSets sets() const HVD_EXCLUDES(mutex_);
  // For the engine: `sets` is in force from now on. Operations of a set that is in it no more can only be completed.
  void publish(topology::ProcessSets sets) HVD_EXCLUDES(mutex_);

  // For the engine: what was added since the last call.
  std::vector<negotiation::OwnRequest> fetch() HVD_EXCLUDES(mutex_);
  // Null when there is no such operation.
  PendingOperationPtr find(negotiation::OperationId id) const HVD_EXCLUDES(mutex_);
  // The same for each, and from now on they are on a lane: close() leaves them to that lane.
  std::vector<PendingOperationPtr> start(std::span<const negotiation::OwnResponse> released) HVD_EXCLUDES(mutex_);

  // They have not come to a lane after all. Takes no memory.
  void put_back(std::span<const negotiation::OwnResponse> started) HVD_EXCLUDES(mutex_);

  // Their handles are done, and they have left the table; what they use they keep until they are completed as well.
  // That may be with an error, which Handle::order() tells. `end` is when the GPU has made the results.
  void hand_over(const std::vector<PendingOperationPtr>& operations,
                 const std::shared_ptr<collectives::cuda::Event>& end) HVD_EXCLUDES(mutex_);
  void complete(std::span<const PendingOperationPtr> operations, const Status& status) HVD_EXCLUDES(mutex_);
  void complete(negotiation::OperationId id, const Status& status) HVD_EXCLUDES(mutex_);
  // The oldest operations that no lane runs and that were added before `then`: of all, and of those that a thread waits
  // for.
  struct Oldest {
    std::optional<BlockedOn> of_all;
    std::optional<BlockedOn> waited_for;
  };
  Oldest oldest(TimePoint then) const HVD_EXCLUDES(mutex_);
  bool empty() const HVD_EXCLUDES(mutex_);

  // Refuses everything from now on with `why` (the first reason stays) and completes what no lane is running. With a
  // `hint` their errors say which operation waited, and the hint.
  void close(const Status& why, const std::string& hint = "") HVD_EXCLUDES(mutex_);

  // Names of what is in the table, in the order of submission.
  std::vector<std::string> pending() const HVD_EXCLUDES(mutex_);

  // Whether a timeline is written, which shows what is negotiated.
  bool is_watched() const { return recorder_.timeline().is_active(); }

  // What has ended well so far, and how long this rank has waited.
  rendezvous::RankWork work() const HVD_EXCLUDES(mutex_);

  // How many joins of the global set have completed well.
  std::uint64_t joins() const { return joins_; }

 private:
  // A process set that takes operations, and what is pending in it.
  struct OpenSet {
    OpenSet(topology::ProcessSetPtr of, std::pmr::memory_resource& nodes) : set(std::move(of)), names(&nodes) {}

    topology::ProcessSetPtr set;
    bool closed = false;  // its removal was asked for
    bool join_pending = false;
    std::pmr::unordered_set<std::string_view> names;  // of operations in pending_
  };
  // The set of an operation, if this rank may submit to it.
  Result<OpenSet*> open_set_of(const Operation& operation) HVD_REQUIRES(mutex_);
  // Takes the operation's name in its set and finishes what depends on the set.
  Status enter(OpenSet& open, PendingOperation& pending) HVD_REQUIRES(mutex_);
  // The same for all of a group, or for none.
  Status enter_all(OpenSet& open, std::span<PendingOperation> group) HVD_REQUIRES(mutex_);
  static void leave(OpenSet& open, const Operation& operation);
  static std::uint64_t key_of(negotiation::OperationId id) { return static_cast<std::uint64_t>(id); }
  HandlePtr store(PendingOperationPtr pending, TimePoint now) HVD_REQUIRES(mutex_);
  // operation_table_end.cc. False when it was completed before.
  bool forget(const PendingOperation& pending, bool is_well, TimePoint now) HVD_REQUIRES(mutex_);
  // Must not fail: it is in the table no more, and nothing else would end it.
  void finish(PendingOperation& pending, const Status& status, TimePoint now) noexcept HVD_EXCLUDES(mutex_);
  void finish_later(PendingOperation& pending, const Status& status) HVD_EXCLUDES(mutex_);

  void check_engine() const { HVD_DCHECK(engine_.is_current(), "only hvd-engine drains the table of operations"); }

  ThreadChecker engine_;
  recorder::FlightRecorder& recorder_;
  const int rank_;
  mutable Mutex mutex_;
  topology::ProcessSets sets_ HVD_GUARDED_BY(mutex_);
  // Of the two tables below. One thread adds and another takes out: memory of the heap would go from the one's arena to
  // the other's, and back by locks. Freed with the table: no more than what was pending at the most.
  std::pmr::unsynchronized_pool_resource nodes_ HVD_GUARDED_BY(mutex_);
  std::map<std::int32_t, OpenSet> open_ HVD_GUARDED_BY(mutex_);  // those of sets_
  std::pmr::unordered_map<std::uint64_t, PendingOperationPtr> pending_ HVD_GUARDED_BY(mutex_){&nodes_};
  std::vector<negotiation::OwnRequest> fresh_ HVD_GUARDED_BY(mutex_);  // not fetched yet
  std::uint64_t next_id_ HVD_GUARDED_BY(mutex_) = 1;
  WorkTally tally_ HVD_GUARDED_BY(mutex_){SteadyClock::now()};
  std::atomic<std::uint64_t> joins_{0};
  std::optional<Status> closed_ HVD_GUARDED_BY(mutex_);
};

// What one rank can say about an operation by itself, before it is submitted. Pure; every error is kInvalidArgument
// unless it says otherwise. What passes here, the kernels can do and a message can hold: they abort where it is not so.

// Codes that name nothing, names and shapes out of limits, memory that is missing, reductions and factors that the type
// does not have, devices that are not built. An allreduce with Adasum becomes the operation adasum.
Status prepare(Operation& operation);

// What the members of a group must have in common, but for their names. Requires: each was prepared.
Status check_group(const std::vector<Operation>& operations);

// A broadcast's root and an alltoall's splits, which get equal shares of dimension 0 when there are none. A tensor
// without dimensions is left to the negotiation, which reports it on all ranks. Requires: `operation` is one of this
// set.
Status prepare_in_set(Operation& operation, const topology::ProcessSet& set);

// Of its input; none of a join or a barrier.
std::size_t bytes_of(const Operation& operation);

// The errors of an operation whose name is in use, and of a group with two of one name.
Status pending_already(const Operation& operation);
Status twice_in_group(const Operation& operation);

}  // namespace hvd::engine
