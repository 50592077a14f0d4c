#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/work_queue.h"
#include "runtime/collectives/backend.h"
#include "runtime/engine/batch_runner.h"
#include "runtime/engine/operation_table.h"

namespace hvd::engine {

// What one decision asks of one process set, in order.
struct LaneJob {
  std::vector<Batch> batches;
};

// Runs the batches of one process set one after another on a thread of its own (hvd-lane-N), so that a slow set delays
// no other and the engine never blocks. Owned by the engine's executor; push() comes from the engine's thread.
class Lane {
 public:
  // They run on the lane's thread. `job_done`: a job has run to its end. `ended`: close() was called and everything has
  // run; the backend is gone. `failed`: a collective failed; its
  // operations are not complete, because the receiver may know better why.
  struct Events {
    std::function<void()> job_done;
    std::function<void()> ended;
    std::function<void(const Status&, std::vector<EntryPtr>)> failed;
  };

  Lane(topology::ProcessSet set, int global_rank, std::shared_ptr<collectives::CollectiveBackend> backend,
       OperationTable& table, recorder::FlightRecorder& recorder, timeline::TimelineSink& timeline, Events events);
  ~Lane();  // close(), then join

  const topology::ProcessSet& set() const { return set_; }
  void push(LaneJob job) { jobs_.push(std::move(job)); }
  // No more jobs; those queued still run.
  void close() { jobs_.close(); }

 private:
  void run();
  void run_batch(Batch& batch);

  const topology::ProcessSet set_;
  std::shared_ptr<collectives::CollectiveBackend> backend_;  // the executor holds a weak one, to abort it
  OperationTable& table_;
  recorder::FlightRecorder& recorder_;
  Events events_;
  BatchRunner runner_;
  WorkQueue<LaneJob> jobs_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace hvd::engine
