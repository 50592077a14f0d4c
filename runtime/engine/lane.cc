#include "runtime/engine/lane.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"

namespace hvd::engine {

namespace {

std::string refusal(const collectives::CallTraits& call, std::int32_t set, const std::string& declined) {
  std::string text =
      "no backend takes " + std::string(op_type_name(call.op)) + " of " + std::string(data_type_name(call.dtype));
  if (call.memory == collectives::MemoryKind::kDevice) text += " in device memory";
  return text + topology::of_set(set) + ": " + declined;
}

// As Horovod calls it; of backends that it does not have, by their names in the same way.
std::string activity_of(const collectives::CollectiveBackend& backend, OpType op) {
  const std::string_view name = backend.name();
  const bool is_gloos_alltoall = name == "gloo" && op == OpType::kAlltoall;  // Horovod's is called MPI's
  const std::string_view what = op == OpType::kBroadcast ? "bcast" : op_type_name(op);
  return recorder::in_capitals(std::string(is_gloos_alltoall ? "mpi" : name) + "_" + std::string(what));
}

}  // namespace

Lane::Lane(topology::ProcessSetPtr set, int global_rank, std::shared_ptr<collectives::BackendList> backends,
           OperationTable& table, recorder::FlightRecorder& recorder, Events events)
    : set_(std::move(set)),
      set_rank_(topology::index(set_->set_rank(global_rank).value())),
      backends_(std::move(backends)),
      table_(table),
      recorder_(recorder),
      events_(std::move(events)),
      thread_(start_thread("hvd-lane-" + std::to_string(set_->id), [this](const std::stop_token&) { run(); })) {}

Lane::~Lane() {
  close();
  if (thread_.joinable()) thread_.join();
}

// On the engine's thread, which has decisions in their order.
void Lane::push(LaneJob job) {
  for (Batch& batch : job.batches) {
    trace(recorder_.timeline(), batch, "QUEUE");
    if (traits_of(batch).memory == collectives::MemoryKind::kDevice) batch.turn = backends_->next_turn();
  }
  inbox_->push(std::move(job));
}

// Starting comes first, so that the backend has the next call before the lane turns to anything else.
void Lane::run() {
  while (!is_closed_ || !waiting_.empty() || !started_.empty()) {
    if (can_start()) {
      start_next();
    } else {
      std::visit([this]<typename M>(M&& message) { receive(std::forward<M>(message)); }, *inbox_->pop());
    }
  }
  routes_.clear();  // before the backends, whose memory they hold
  backends_.reset();
  events_.ended();
}

void Lane::receive(LaneJob job) {
  for (Batch& batch : job.batches) waiting_.push_back(make_task(std::move(batch)));
  waiting_.back().ends_job = true;
}

void Lane::receive(CollectiveEnd end) {
  HVD_CHECK(!started_.empty() && end.turn - started_.front().turn < started_.size(),
            "a backend has completed a call that is not under way");
  Task& task = started_[end.turn - started_.front().turn];
  if (end.status.is_ok()) {
    task.collective = std::move(end.status);
  } else {
    settle(task, end.status);
  }
  finish_ready();
}

Lane::Task Lane::make_task(Batch batch) {
  Task task;
  const collectives::CallTraits traits = traits_of(batch);
  task.batch = std::move(batch);
  const collectives::BackendList::Choice choice = backends_->choose(traits);
  if (choice.backend == nullptr) {
    task.result = Status::invalid_argument(refusal(traits, set_->id, choice.declined));
    return task;
  }
  task.route = &route_to(*choice.backend, traits.memory);
  if (task.route->logged.insert(traits.op).second) {
    HVD_LOG(kDebug, "backend chosen", log_field("process_set", set_->id), log_field("op", op_type_name(traits.op)),
            log_field("backend", choice.backend->name()), log_field("declined", choice.declined));
  }
  return task;
}

Lane::Route& Lane::route_to(collectives::CollectiveBackend& backend, collectives::MemoryKind kind) {
  const auto [it, is_new] = routes_.try_emplace({&backend, kind}, Route{&backend, {}, {}, {}});
  if (is_new) {
    const int depth = backend.traits().queue_depth;
    HVD_CHECK(depth > 0, "a backend takes at least one call");
    const fusion::FusionBuffer buffer([&backend, kind](std::size_t n) { return backend.allocate_staging(kind, n); });
    it->second.staging.assign(static_cast<std::size_t>(depth), buffer);
  }
  return it->second;
}

bool Lane::can_start() const {
  if (waiting_.empty()) return false;
  if (started_.empty()) return true;
  const Task& last = started_.back();
  return !failure_ && waiting_.front().route == last.route && started_.size() < last.route->staging.size() &&
         !last.run->has_more();
}

void Lane::start_next() {
  check_thread();
  HVD_FAILPOINT("lane.start");
  Task& task = started_.emplace_back(std::move(waiting_.front()));
  waiting_.pop_front();
  task.turn = ++turns_;
  if (started_.size() == 1) publish_running();
  const wire::Response& first = *task.batch.items.front().response;
  recorder_.record(recorder::Phase::kStarted, first.op, first.process_set, first.name, SteadyClock::now());
  if (task.route != nullptr && failure_) settle(task, *failure_);
  if (!task.result) {
    // Turns of started batches are consecutive, so no two of them share a buffer.
    fusion::FusionBuffer& staging = task.route->staging[task.turn % task.route->staging.size()];
    task.run = make_run(task.batch, {*set_, set_rank_, *task.route->backend, staging,
                                     [this, &task](const auto& end) { hand_over(task, end); }, recorder_.timeline()});
    advance(task);
  }
  finish_ready();
}

void Lane::advance(Task& task) {
  check_thread();
  const Result<const collectives::CollectiveCall*> call = task.run->next();
  if (!call.is_ok() || call.value() == nullptr) return settle(task, call.is_ok() ? Status::ok() : call.status());
  if (recorder_.timeline().is_active()) {
    trace(recorder_.timeline(), task.batch, activity_of(*task.route->backend, call.value()->op));
  }
  task.route->backend->start(*call.value(), [inbox = inbox_, turn = task.turn](Status status) {
    inbox->push(CollectiveEnd{turn, std::move(status)});
  });
}

// Inside the backend's start(). What a GPU still has to do holds nobody up who waits for it in a stream; for the lane
// the batch is under way until it has ended.
void Lane::hand_over(Task& task, const std::shared_ptr<collectives::cuda::Event>& end) {
  check_thread();
  std::vector<PendingOperationPtr> operations;
  for (const BatchItem& item : task.batch.items) {
    if (item.pending != nullptr && item.pending->operation.may_precede_gpu) operations.push_back(item.pending);
  }
  if (!operations.empty()) table_.hand_over(operations, end);
}

void Lane::settle(Task& task, const Status& result) {
  task.result = result;
  if (task.batch.turn != nullptr) task.batch.turn->pass();  // it starts nothing any more
  if (!result.is_ok() && !failure_) failure_ = result;
}

// Unpacks and completes what has ended, in order.
void Lane::finish_ready() {
  while (!started_.empty()) {
    Task& task = started_.front();
    if (std::exchange(task.collective, std::nullopt)) advance(task);
    if (!task.result) return;
    Task done = std::move(task);
    started_.pop_front();
    publish_running();
    complete(done);
  }
}

void Lane::complete(Task& task) {
  check_thread();
  HVD_FAILPOINT("lane.done");
  const wire::Response& first = *task.batch.items.front().response;
  std::vector<PendingOperationPtr> operations;
  operations.reserve(task.batch.items.size());
  for (BatchItem& item : task.batch.items) {
    if (item.pending != nullptr) operations.push_back(std::move(item.pending));
  }
  if (task.result->is_ok() && task.route != nullptr) log_path(*task.route, first.op);
  if (task.result->is_ok() || task.route == nullptr) {
    table_.complete(operations, *task.result);  // that no backend takes it, all members find alike: the session goes on
  } else {
    const std::string what = std::string(op_type_name(first.op)) + " of '" + first.name + "'";
    events_.failed(task.result->annotate(what), std::move(operations));
  }
  if (task.ends_job) events_.job_done();
}

// After the call, because which way it goes may depend on where other members' tensors lie.
void Lane::log_path(Route& route, OpType op) const {
  const std::string_view path = route.backend->path();
  if (path.empty() || !route.logged_paths.insert({op, path}).second) return;
  HVD_LOG(kDebug, "data path", log_field("process_set", set_->id), log_field("op", op_type_name(op)),
          log_field("backend", route.backend->name()), log_field("path", path));
}

std::optional<RunningBatch> Lane::running() const {
  const MutexLock lock(mutex_);
  return running_;
}

void Lane::publish_running() {
  const MutexLock lock(mutex_);
  running_.reset();
  if (started_.empty()) return;
  const Task& task = started_.front();
  const wire::Response& first = *task.batch.items.front().response;
  running_.emplace(RunningBatch{set_->id, set_->context_id, task.turn, first.op, first.name,
                                static_cast<std::uint32_t>(task.batch.items.size() - 1)});
}

}  // namespace hvd::engine
