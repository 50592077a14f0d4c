#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"
#include "runtime/engine/lane.h"
#include "runtime/negotiation/worker.h"

namespace hvd::engine {

// Makes the backends for a process set: the same ones in the same order on every member.
using BackendFactory = std::function<std::shared_ptr<collectives::BackendList>(const topology::ProcessSet&)>;

// Turns what a decision means for this rank into work for lanes. Owned by the engine loop and confined to its thread.
// Lanes are made when a set first has work.
class Executor {
 public:
  struct Events {
    // What one decision released of a set has run. On the lane's thread, or within execute().
    std::function<void(std::int32_t process_set, std::uint64_t context_id)> job_done;
    std::function<void(std::uint64_t context_id)> lane_ended;                     // on the lane's thread, its last act
    std::function<void(const Status&, std::vector<PendingOperationPtr>)> failed;  // on the lane's or the engine's
  };
  Executor(int global_rank, OperationTable& table, recorder::FlightRecorder& recorder, BackendFactory backend_factory,
           Events events);

  // Completes errors, barriers and joins at once, plans the rest into batches and queues them on their lanes. The
  // lane of a set that the decision removes runs what is queued, then ends. Takes what is ready out of `output`.
  void execute(negotiation::WorkerOutput& output);
  // All backends of all lanes. Whatever waits for peers fails with `why`.
  void abort(const Status& why);
  // What the lanes are running now.
  std::vector<RunningBatch> running() const;
  // The lane of a removed set has ended: destroys it.
  void reap(std::uint64_t context_id);
  // Closes all lanes and hands them to the caller, which destroys them on another thread than the engine's: their
  // destructors wait for what is queued. abort() still reaches their backends.
  std::vector<std::unique_ptr<Lane>> take_lanes();
  // Requires: the lanes are gone. After this nothing here refers to the transport.
  void drop_backends() {
    check_thread();
    backends_.clear();
  }

 private:
  // Throws std::system_error when the system gives no thread for a new one.
  Lane& lane_for(const topology::ProcessSetPtr& set);
  void retire(std::int32_t process_set);
  // True when the operation needs no data to be moved; it is complete then.
  bool complete_without_data(const negotiation::OwnResponse& op);
  // Small tensors that the control tree has reduced.
  void complete_small(std::span<const negotiation::OwnResponse> ops);
  void queue_on_lane(const topology::ProcessSetPtr& set, std::vector<negotiation::OwnResponse> ops,
                     const wire::FusionLimits& limits);

  void check_thread() const { HVD_DCHECK(thread_.is_current(), "the executor is confined to hvd-engine"); }

  ThreadChecker thread_;
  int rank_;
  OperationTable& table_;
  recorder::FlightRecorder& recorder_;
  BackendFactory backend_factory_;
  Events events_;
  std::map<std::int32_t, std::unique_ptr<Lane>> lanes_;
  // Of removed sets; joined when they have ended, so that the engine never waits.
  std::vector<std::unique_ptr<Lane>> retired_;
  // By context id, for abort(). A lane destroys its backends on its own thread, where waiting harms nobody.
  std::map<std::uint64_t, std::weak_ptr<collectives::BackendList>> backends_;
};

}  // namespace hvd::engine
