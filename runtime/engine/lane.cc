#include "runtime/engine/lane.h"

#include <utility>

#include "runtime/base/thread.h"

namespace hvd::engine {

Lane::Lane(topology::ProcessSetPtr set, int global_rank, std::shared_ptr<collectives::BackendList> backends,
           OperationTable& table, recorder::FlightRecorder& recorder, Events events)
    : set_(std::move(set)),
      backends_(std::move(backends)),
      table_(table),
      recorder_(recorder),
      events_(std::move(events)),
      runner_(std::in_place, *set_, global_rank, *backends_),
      thread_(start_thread("hvd-lane-" + std::to_string(set_->id), [this](const std::stop_token&) { run(); })) {}

Lane::~Lane() {
  close();
  if (thread_.joinable()) thread_.join();
}

void Lane::run() {
  while (auto job = jobs_.pop()) {
    for (Batch& batch : job->batches) run_batch(batch, job->released);
    events_.job_done();
  }
  runner_.reset();  // gives its buffers back to the backends
  backends_.reset();
  events_.ended();
}

std::optional<RunningBatch> Lane::running() const {
  const MutexLock lock(mutex_);
  return running_;
}

void Lane::run_batch(Batch& batch, TimePoint released) {
  const wire::Response& first = *batch.items.front().response;
  {
    const MutexLock lock(mutex_);
    running_.emplace(RunningBatch{set_->id, set_->context_id, ++turns_, first.op, first.name,
                                  static_cast<std::uint32_t>(batch.items.size() - 1), released});
  }
  recorder_.record(recorder::Phase::kStarted, first.op, first.process_set, first.name);
  const Status status = runner_->run(batch);
  {
    const MutexLock lock(mutex_);
    running_.reset();
  }
  std::vector<EntryPtr> entries;
  entries.reserve(batch.items.size());
  for (BatchItem& item : batch.items) {
    if (item.entry != nullptr) entries.push_back(std::move(item.entry));
  }
  if (status.is_ok()) return table_.complete(entries, status);
  events_.failed(status.annotate(std::string(op_type_name(first.op)) + " of '" + first.name + "'"), std::move(entries));
}

}  // namespace hvd::engine
