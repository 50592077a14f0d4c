#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"
#include "runtime/base/work_queue.h"
#include "runtime/collectives/backend_list.h"
#include "runtime/engine/batch_run.h"
#include "runtime/engine/operation_table.h"

namespace hvd::engine {

// What one decision asks of one process set, in order. At least one batch.
struct LaneJob {
  std::vector<Batch> batches;
};

// The batch that a lane is running.
struct RunningBatch {
  std::int32_t process_set = 0;
  std::uint64_t context_id = 0;
  std::uint64_t turn = 0;  // 1, 2, … in the order of running, which is the same on all members
  OpType op = OpType::kAllreduce;
  std::string name;         // of its first tensor
  std::uint32_t fused = 0;  // so many more tensors
  collectives::PeerProgress progress{};
};

// Runs the batches of one process set on a thread of its own (hvd-lane-N), so that a slow set delays no other and the
// engine never blocks. Owned by the engine's executor; push() comes from the engine's thread.
//
// A pipeline: while one batch is in its collective, the batch before it is unpacked and the next one is packed, as far
// as the backend takes several calls (BackendTraits). Batches start and complete in the order of push(). Invariants:
//  - all members of the set start the same collectives in the same order: a batch starts only when the one before it
//    has no collective left to start, and never beside a batch of another backend;
//  - there are at most as many started batches and staging buffers as the backend takes calls;
//  - after a failure nothing starts any more: what other members would receive might be taken for another batch.
// A backend may complete a call on any thread; the lane sleeps until something is to be done.
class Lane {
 public:
  // They run on the lane's thread. `job_done`: a job has run to its end. `ended`: close() was called and everything has
  // run; the backends are released. `failed`: a collective failed; its operations are not complete, because the
  // receiver may know better why.
  struct Events {
    std::function<void()> job_done;
    std::function<void()> ended;
    std::function<void(const Status&, std::vector<PendingOperationPtr>)> failed;
  };

  Lane(topology::ProcessSetPtr set, int global_rank, std::shared_ptr<collectives::BackendList> backends,
       OperationTable& table, recorder::FlightRecorder& recorder, Events events);
  ~Lane();  // close(), then join

  const topology::ProcessSet& set() const { return *set_; }
  void push(LaneJob job);
  // From any thread, without the progress: the oldest batch that has started; nothing while there is none.
  std::optional<RunningBatch> running() const HVD_EXCLUDES(mutex_);
  // No more jobs; those queued still run.
  void close() { inbox_->push(Close{}); }

 private:
  // What arrives at the lane's thread.
  struct CollectiveEnd {
    std::uint64_t turn;
    Status status;
  };
  struct Close {};
  using Inbox = WorkQueue<std::variant<LaneJob, CollectiveEnd, Close>>;

  // One backend and one kind of memory.
  struct Route {
    collectives::CollectiveBackend* backend;
    std::vector<fusion::FusionBuffer> staging;  // one for each batch that may be under way
    std::set<OpType> logged;
    std::set<std::pair<OpType, std::string_view>> logged_paths;
  };
  struct Task {
    Batch batch;
    bool ends_job = false;
    Route* route = nullptr;  // null: no backend takes it
    std::uint64_t turn = 0;  // from here on: once it has started
    std::unique_ptr<BatchRun> run;
    std::optional<Status> collective;  // how the collective under way ended
    std::optional<Status> result;      // the batch is done
  };

  void check_thread() const { HVD_DCHECK(lane_.is_current(), "batches are confined to their lane's thread"); }
  void run();
  void receive(LaneJob job);
  void receive(CollectiveEnd end);
  void receive(Close) { is_closed_ = true; }
  Task make_task(Batch batch);
  Route& route_to(collectives::CollectiveBackend& backend, collectives::MemoryKind kind);
  bool can_start() const;
  void start_next();
  void advance(Task& task);
  void hand_over(Task& task, const std::shared_ptr<collectives::cuda::Event>& end);
  void settle(Task& task, const Status& result);
  void finish_ready();
  void complete(Task& task);
  void log_path(Route& route, OpType op) const;
  void publish_running() HVD_EXCLUDES(mutex_);

  ThreadChecker lane_;
  const topology::ProcessSetPtr set_;
  const int set_rank_;
  std::shared_ptr<collectives::BackendList> backends_;  // the executor holds a weak one, to abort them
  OperationTable& table_;
  recorder::FlightRecorder& recorder_;
  Events events_;
  // Shared with completions: the thread that completes the last call may still be in push() when the lane is gone.
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  // Lane's thread only.
  std::map<std::pair<collectives::CollectiveBackend*, collectives::MemoryKind>, Route> routes_;
  std::deque<Task> waiting_;
  std::deque<Task> started_;  // their turns are consecutive
  std::uint64_t turns_ = 0;
  std::optional<Status> failure_;  // the first
  bool is_closed_ = false;

  mutable Mutex mutex_;
  std::optional<RunningBatch> running_ HVD_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace hvd::engine
