#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/base/work_queue.h"
#include "runtime/collectives/backend_list.h"
#include "runtime/engine/batch_runner.h"
#include "runtime/engine/operation_table.h"

namespace hvd::engine {

// What one decision asks of one process set, in order.
struct LaneJob {
  std::vector<Batch> batches;
  TimePoint released;
};

// The batch that a lane is running.
struct RunningBatch {
  std::int32_t process_set = 0;
  std::uint64_t context_id = 0;
  std::uint64_t turn = 0;  // 1, 2, … in the order of running, which is the same on all members
  OpType op = OpType::kAllreduce;
  std::string name;         // of its first tensor
  std::uint32_t fused = 0;  // so many more tensors
  TimePoint released;
  collectives::PeerProgress progress{};
};

// Runs the batches of one process set one after another on a thread of its own (hvd-lane-N), so that a slow set delays
// no other and the engine never blocks. Owned by the engine's executor; push() comes from the engine's thread.
class Lane {
 public:
  // They run on the lane's thread. `job_done`: a job has run to its end. `ended`: close() was called and everything has
  // run; the backends are released. `failed`: a collective failed; its
  // operations are not complete, because the receiver may know better why.
  struct Events {
    std::function<void()> job_done;
    std::function<void()> ended;
    std::function<void(const Status&, std::vector<EntryPtr>)> failed;
  };

  Lane(topology::ProcessSetPtr set, int global_rank, std::shared_ptr<collectives::BackendList> backends,
       OperationTable& table, recorder::FlightRecorder& recorder, Events events);
  ~Lane();  // close(), then join

  const topology::ProcessSet& set() const { return *set_; }
  void push(LaneJob job) { jobs_.push(std::move(job)); }
  // From any thread, without the progress; nothing while no batch runs.
  std::optional<RunningBatch> running() const HVD_EXCLUDES(mutex_);
  // No more jobs; those queued still run.
  void close() { jobs_.close(); }

 private:
  void run();
  void run_batch(Batch& batch, TimePoint released);

  const topology::ProcessSetPtr set_;
  std::shared_ptr<collectives::BackendList> backends_;  // the executor holds a weak one, to abort them
  OperationTable& table_;
  recorder::FlightRecorder& recorder_;
  Events events_;
  std::optional<BatchRunner> runner_;  // lane only; until the backends are released
  WorkQueue<LaneJob> jobs_;
  mutable Mutex mutex_;
  std::optional<RunningBatch> running_ HVD_GUARDED_BY(mutex_);
  std::uint64_t turns_ = 0;  // lane only
  std::jthread thread_;      // last: it uses everything above
};

}  // namespace hvd::engine
