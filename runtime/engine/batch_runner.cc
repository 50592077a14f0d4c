#include "runtime/engine/batch_runner.h"

#include <numeric>
#include <utility>

#include "runtime/base/event.h"
#include "runtime/base/log.h"
#include "runtime/engine/handle_state.h"

namespace hvd::engine {

namespace {

bool is_integer(DataType dtype) {
  return dtype != DataType::kFloat16 && dtype != DataType::kBfloat16 && dtype != DataType::kFloat32 &&
         dtype != DataType::kFloat64;
}

// What all members know of the collectives of a batch.
collectives::CallTraits traits_of(const Batch& batch) {
  const wire::Response& first = *batch.items.front().response;
  const auto memory = first.on_gpu ? collectives::MemoryKind::kDevice : collectives::MemoryKind::kHost;
  return {first.op, first.dtype, wire_reduce_op(first.reduce_op), memory, batch.bytes};
}

std::string text_of(const collectives::CallTraits& call) {
  std::string text(op_type_name(call.op));
  text.append(" of ").append(data_type_name(call.dtype));
  return text + (call.memory == collectives::MemoryKind::kDevice ? " in device memory" : "");
}

}  // namespace

ReduceOp wire_reduce_op(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

BatchRunner::BatchRunner(topology::ProcessSet set, int global_rank, const collectives::BackendList& backends)
    : set_(std::move(set)), set_rank_(topology::index(set_.set_rank(global_rank).value())), backends_(backends) {}

Status BatchRunner::run(Batch& batch) {
  HVD_RETURN_IF_ERROR(choose_backend(traits_of(batch)));
  const OpType op = batch.items.front().response->op;
  switch (op) {
    case OpType::kAllreduce:
    case OpType::kAdasum: return reduce(batch);
    case OpType::kReducescatter: return reducescatter(batch);
    case OpType::kAlltoall: return alltoall(batch.items.front());
    case OpType::kAllgather: return batch.items.size() > 1 ? allgather_fused(batch) : allgather(batch.items.front());
    case OpType::kBroadcast: return broadcast(batch.items.front());
    default: return Status::internal("no " + std::string(op_type_name(op)) + " operation enabled");
  }
}

Status BatchRunner::choose_backend(const collectives::CallTraits& call) {
  const collectives::BackendList::Choice choice = backends_.choose(call);
  if (choice.backend == nullptr) {
    return Status::invalid_argument("no backend takes this " + text_of(call) + topology::of_set(set_.id) + ": " +
                                    choice.declined);
  }
  backend_ = choice.backend;
  memory_ = &backend_->memory(call.memory);
  const auto allocate = [backend = backend_, kind = call.memory](std::size_t bytes) {
    return backend->allocate_staging(kind, bytes);
  };
  buffer_ = &buffers_.try_emplace({backend_, call.memory}, allocate).first->second;
  if (logged_.insert({backend_, call.op}).second) {
    HVD_LOG(kDebug, "backend chosen", log_field("process_set", set_.id), log_field("op", op_type_name(call.op)),
            log_field("backend", backend_->name()), log_field("declined", choice.declined));
  }
  return Status::ok();
}

Status BatchRunner::call(const collectives::CollectiveCall& call) {
  Event finished;
  Status status;
  backend_->start(call, [&](Status result) {
    status = std::move(result);
    finished.set();
  });
  finished.wait();
  return status;
}

kernels::Scaling BatchRunner::scaling_of(const wire::Response& response) const {
  kernels::Scaling scaling{response.prescale, response.postscale};
  if (response.reduce_op != ReduceOp::kAverage) return scaling;
  if (is_integer(response.dtype) && response.postscale == 1.0) {
    scaling.divisor = set_.size();
  } else {
    scaling.after /= set_.size();
  }
  return scaling;
}

Status BatchRunner::allgather(const BatchItem& item) {
  const wire::Response& response = *item.response;
  if (item.entry == nullptr) return Status::internal("allgather with a joined rank");
  const Operation& operation = item.entry->operation;
  Shape shape = operation.input.shape;
  const std::int64_t row = std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
  collectives::CollectiveCall request;
  request.op = OpType::kAllgather;
  request.dtype = response.dtype;
  for (const std::int64_t rows : response.first_dims) request.rank_counts.push_back(rows * row);
  shape[0] = std::accumulate(response.first_dims.begin(), response.first_dims.end(), std::int64_t{0});
  HVD_ASSIGN_OR_RETURN(request.output, operation.allocate_output(shape));
  request.input = operation.input.data;
  request.count = num_elements(operation.input.shape);
  Handle::State& state = item.entry->handle.state();
  state.output_shape = shape;
  state.received_splits = response.first_dims;
  if (num_elements(shape) == 0) return Status::ok();
  return call(request);
}

Status BatchRunner::broadcast(const BatchItem& item) {
  const wire::Response& response = *item.response;
  if (item.entry == nullptr) return Status::internal("broadcast with a joined rank");
  const Operation& operation = item.entry->operation;
  item.entry->handle.state().output_shape = response.shape;
  collectives::CollectiveCall request;
  request.op = OpType::kBroadcast;
  request.dtype = response.dtype;
  request.output = operation.output;
  request.count = num_elements(response.shape);
  request.root = topology::index(set_.set_rank(response.root_rank).value());
  if (request.count == 0) return Status::ok();
  if (request.root == set_rank_) memory_->copy(operation.output, operation.input.data, operation.input.byte_size());
  return call(request);
}

}  // namespace hvd::engine
