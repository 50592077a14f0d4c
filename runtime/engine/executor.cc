#include "runtime/engine/executor.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/collectives/local_backend.h"
#include "runtime/collectives/memory.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/fusion/fusion_planner.h"

namespace hvd::engine {

namespace {

// A decision releases operations of a set before it removes it, and never those of a set that it adds.
topology::ProcessSetPtr set_of_release(std::int32_t id, const negotiation::WorkerOutput& output) {
  for (const topology::ProcessSetPtr& removed : output.removed_sets) {
    if (removed->id == id) return removed;
  }
  topology::ProcessSetPtr set = output.sets->share(id);
  HVD_CHECK(set != nullptr, "the worker lets no operation of an unknown process set pass");
  return set;
}

}  // namespace

Executor::Executor(int global_rank, OperationTable& table, recorder::FlightRecorder& recorder,
                   BackendFactory backend_factory, Events events)
    : rank_(global_rank),
      table_(table),
      recorder_(recorder),
      backend_factory_(std::move(backend_factory)),
      events_(std::move(events)) {}

// What needs no data is completed here: small tensors that the tree has reduced, then the rest in the order of the
// decision; what is left goes to the lanes, a job for each set.
// Sets are retired last, because the decision may have released operations of a set before it removed it.
void Executor::execute(negotiation::WorkerOutput& output) {
  check_thread();
  // The ready operations of one decision by process set, in the order of the decision.
  std::map<std::int32_t, std::vector<negotiation::OwnResponse>> by_set;
  // Also sets with nothing to move: their job is done at once.
  for (const std::int32_t id : output.released) by_set[id];
  std::vector<negotiation::OwnResponse> ready = std::exchange(output.ready, {});
  const auto small =
      std::ranges::stable_partition(ready, [](const negotiation::OwnResponse& op) { return op.elements.empty(); });
  complete_small(small);
  for (negotiation::OwnResponse& op : std::span(ready.begin(), small.begin())) {
    if (!complete_without_data(op)) by_set[op.response->process_set].push_back(std::move(op));
  }
  for (auto& [id, ops] : by_set) {
    const topology::ProcessSetPtr set = set_of_release(id, output);
    if (ops.empty()) {
      events_.job_done(id, set->context_id);
    } else {
      queue_on_lane(set, std::move(ops), output.limits);
    }
  }
  for (const topology::ProcessSetPtr& set : output.removed_sets) retire(set->id);
}

void Executor::retire(std::int32_t process_set) {
  const auto it = lanes_.find(process_set);
  if (it == lanes_.end()) return;
  it->second->close();
  retired_.push_back(std::move(it->second));
  lanes_.erase(it);
}

void Executor::reap(std::uint64_t context_id) {
  check_thread();
  std::erase_if(retired_, [&](const auto& lane) { return lane->set().context_id == context_id; });
  backends_.erase(context_id);
}

void Executor::complete_small(std::span<const negotiation::OwnResponse> ops) try {
  if (ops.empty()) return;
  const std::vector<PendingOperationPtr> done = table_.start(ops);
  const TimePoint now = SteadyClock::now();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const wire::Response& response = *ops[i].response;
    HVD_CHECK(done[i] != nullptr, "what was read for the report is still pending");
    recorder_.record(recorder::Phase::kStarted, response.op, response.process_set, response.name, now);
    recorder_.timeline().activity(response.op, response.process_set, response.name, "TREE_ALLREDUCE");
    collectives::host_memory().scale_result(response.dtype, done[i]->operation.output, ops[i].elements.data(),
                                            num_elements(response.shape), scaling_of(response, done[i]->set->size()));
    done[i]->handle.state().output_shape = response.shape;
  }
  table_.complete(done, Status::ok());
} catch (const std::bad_alloc&) {  // no lane has them: they end with the session
  table_.put_back(ops);
  throw;
}

bool Executor::complete_without_data(const negotiation::OwnResponse& op) {
  const wire::Response& response = *op.response;
  const bool no_data = response.is_error() || response.op == OpType::kBarrier || response.op == OpType::kJoin;
  if (!no_data) return false;
  if (const PendingOperationPtr pending = table_.find(op.operation)) {
    if (response.op == OpType::kJoin) pending->handle.state().value = response.root_rank;
    table_.complete(op.operation, response.status());
  }
  return true;
}

void Executor::queue_on_lane(const topology::ProcessSetPtr& set, std::vector<negotiation::OwnResponse> ops,
                             const wire::FusionLimits& limits) try {
  std::vector<PendingOperationPtr> pending = table_.start(ops);
  std::vector<const wire::Response*> responses;
  responses.reserve(ops.size());
  for (const auto& op : ops) responses.push_back(op.response.get());
  LaneJob job;
  for (const fusion::Batch& planned : fusion::plan(responses, limits, fusion::alone_bytes(set->size()))) {
    Batch batch;
    batch.items.reserve(planned.items.size());
    batch.offsets = planned.offsets;
    batch.bytes = planned.bytes;
    for (const std::size_t index : planned.items) {
      const bool has_joined = ops[index].operation == negotiation::OperationId::kNone;
      HVD_CHECK(has_joined || pending[index] != nullptr, "this rank would take part with zeros in its own operation");
      batch.items.push_back({std::move(ops[index].response), std::move(pending[index])});
    }
    job.batches.push_back(std::move(batch));
  }
  try {
    lane_for(set).push(std::move(job));
  } catch (const std::system_error& e) {  // before the lane has anything
    std::vector<PendingOperationPtr> operations;
    for (const Batch& batch : job.batches) {
      for (const BatchItem& item : batch.items) {
        if (item.pending != nullptr) operations.push_back(item.pending);
      }
    }
    events_.failed(Status::from_errno("a thread for collectives" + topology::of_set(set->id), e.code().value()),
                   std::move(operations));
  }
} catch (const std::bad_alloc&) {  // the lane has nothing of it: they end with the session
  table_.put_back(ops);
  throw;
}

Lane& Executor::lane_for(const topology::ProcessSetPtr& set) {
  if (!lanes_.contains(set->id)) {
    auto backends = backend_factory_ ? backend_factory_(*set) : collectives::local_backends();
    backends_[set->context_id] = backends;
    Lane::Events events{[this, id = set->id, context = set->context_id] { events_.job_done(id, context); },
                        [this, context = set->context_id] { events_.lane_ended(context); }, events_.failed};
    lanes_.emplace(set->id,
                   std::make_unique<Lane>(set, rank_, std::move(backends), table_, recorder_, std::move(events)));
  }
  return *lanes_.at(set->id);
}

void Executor::abort(const Status& why) {
  check_thread();
  for (const auto& [context_id, weak] : backends_) {
    if (const auto backends = weak.lock()) backends->abort(why);
  }
}

std::vector<RunningBatch> Executor::running() const {
  check_thread();
  std::vector<RunningBatch> all;
  const auto add = [&](const Lane& lane) {
    if (lane.set().size() == 1) return;  // waits for nobody
    auto batch = lane.running();
    const auto backends = backends_.at(lane.set().context_id).lock();
    if (!batch || !backends) return;
    batch->progress = backends->progress();
    all.push_back(std::move(*batch));
  };
  for (const auto& [id, lane] : lanes_) add(*lane);
  for (const auto& lane : retired_) add(*lane);
  return all;
}

std::vector<std::unique_ptr<Lane>> Executor::take_lanes() {
  check_thread();
  std::vector<std::unique_ptr<Lane>> lanes = std::move(retired_);
  retired_.clear();
  for (auto& [id, lane] : lanes_) {
    lane->close();
    lanes.push_back(std::move(lane));
  }
  lanes_.clear();
  return lanes;
}

}  // namespace hvd::engine
