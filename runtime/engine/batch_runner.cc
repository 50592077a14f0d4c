#include "runtime/engine/batch_runner.h"

#include <numeric>
#include <utility>

#include "runtime/base/event.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/engine/handle_state.h"

namespace hvd::engine {

namespace {

bool is_integer(DataType dtype) {
  return dtype != DataType::kFloat16 && dtype != DataType::kBfloat16 && dtype != DataType::kFloat32 &&
         dtype != DataType::kFloat64;
}

// A reduction over one rank: the result is its input, scaled.
void reduce_own(const collectives::CollectiveCall& call) {
  const bool scatters = call.op == OpType::kReducescatter;
  if (!scatters && call.op != OpType::kAllreduce && call.op != OpType::kAdasum) return;
  const std::int64_t n = scatters ? call.rank_counts.front() : call.count;
  const void* const source = call.input != nullptr ? call.input : call.output;
  kernels::scale_copy(call.dtype, call.output, source, n, call.scaling.before);
  kernels::scale_result(call.dtype, call.output, call.output, n, call.scaling);
}

}  // namespace

BatchRunner::BatchRunner(topology::ProcessSet set, int global_rank, collectives::CollectiveBackend* backend)
    : set_(std::move(set)), set_rank_(topology::index(set_.set_rank(global_rank).value())), backend_(backend) {
  HVD_CHECK(backend_ != nullptr || set_.size() == 1, "a set of several ranks needs a backend");
}

Status BatchRunner::run(Batch& batch) {
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

Status BatchRunner::call(const collectives::CollectiveCall& call) {
  if (backend_ == nullptr) {
    reduce_own(call);
    return Status::ok();
  }
  if (std::string reason = backend_->why_not(call); !reason.empty()) {
    return Status::internal(std::string(backend_->name()) + " can't run this " + std::string(op_type_name(call.op)) +
                            ": " + reason);
  }
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
  if (backend_ == nullptr) kernels::copy(response.dtype, request.output, request.input, request.count);
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
  if (request.root == set_rank_ && operation.output != operation.input.data) {
    kernels::copy(response.dtype, operation.output, operation.input.data, request.count);
  }
  return call(request);
}

}  // namespace hvd::engine
