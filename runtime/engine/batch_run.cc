#include "runtime/engine/batch_run.h"

#include <functional>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

bool is_integer(DataType dtype) { return dtype <= DataType::kInt64 || dtype == DataType::kBool; }

class BroadcastRun final : public SingleCollective {
 public:
  using SingleCollective::SingleCollective;

 private:
  Result<bool> pack() override {
    const BatchItem& item = batch_.items.front();
    if (item.pending == nullptr) return Status::internal("broadcast with a joined rank");
    const Operation& operation = item.pending->operation;
    item.pending->handle.state().output_shape = first().shape;
    call_.output = operation.output;
    call_.count = num_elements(first().shape);
    call_.root = topology::index(context_.set.set_rank(first().root_rank).value());
    if (call_.root == context_.set_rank && call_.memory == collectives::MemoryKind::kDevice) {
      call_.input = operation.input.data;
    } else if (call_.root == context_.set_rank) {
      memory().copy(operation.output, operation.input.data, operation.input.byte_size());
    }
    return call_.count > 0;
  }
};

}  // namespace

std::int64_t row_elements(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

collectives::CallTraits traits_of(const Batch& batch) {
  const wire::Response& first = *batch.items.front().response;
  // An average is a sum that is scaled afterwards.
  const ReduceOp op = first.reduce_op == ReduceOp::kAverage ? ReduceOp::kSum : first.reduce_op;
  const auto memory = first.on_gpu ? collectives::MemoryKind::kDevice : collectives::MemoryKind::kHost;
  return {first.op, first.dtype, op, memory, batch.bytes};
}

void trace(recorder::Timeline& timeline, const Batch& batch, std::string_view activity) {
  if (!timeline.is_active()) return;
  for (const BatchItem& item : batch.items) {
    const wire::Response& response = *item.response;
    if (item.pending != nullptr) timeline.activity(response.op, response.process_set, response.name, activity);
  }
}

collectives::DeviceUse device_use(const Batch& batch, const BatchContext& context) {
  collectives::DeviceUse use;
  use.enqueued = context.enqueued;
  use.devices_key = batch.items.front().response->devices_key;
  for (const BatchItem& item : batch.items) {
    if (item.pending == nullptr || item.pending->operation.ready == nullptr) continue;
    use.device = item.pending->operation.input.device;
    // Those of a group share one.
    const auto& ready = item.pending->operation.ready;
    if (use.ready.empty() || use.ready.back() != ready) use.ready.push_back(ready);
  }
  use.turn = batch.turn;
  use.owners = [&batch] {
    collectives::cuda::Owners owners;
    for (const BatchItem& item : batch.items) {
      if (item.pending != nullptr && item.pending->operation.keep_alive != nullptr)
        owners.push_back(item.pending->operation.keep_alive);
    }
    return owners;
  };
  return use;
}

std::unique_ptr<BatchRun> make_run(const Batch& batch, const BatchContext& context) {
  switch (batch.items.front().response->op) {
    case OpType::kAllreduce:
    case OpType::kAdasum: return make_reduce_run(batch, context);
    case OpType::kReducescatter: return make_scatter_run(batch, context);
    case OpType::kAllgather: return make_gather_run(batch, context);
    case OpType::kAlltoall: return make_alltoall_run(batch, context);
    case OpType::kBroadcast: return std::make_unique<BroadcastRun>(batch, context);
    default: HVD_CHECK(false, "barriers and joins complete without a lane");
  }
}

SingleCollective::SingleCollective(const Batch& batch, const BatchContext& context) : batch_(batch), context_(context) {
  const collectives::CallTraits traits = traits_of(batch);
  call_.op = traits.op;
  call_.dtype = traits.dtype;
  call_.reduce_op = traits.reduce_op;
  call_.memory = traits.memory;
  if (call_.memory == collectives::MemoryKind::kDevice) call_.use = device_use(batch, context);
}

Result<const collectives::CollectiveCall*> SingleCollective::next() {
  if (std::exchange(is_packed_, true)) {
    HVD_FAILPOINT("lane.unpack");
    unpack();
    return nullptr;
  }
  HVD_FAILPOINT_RETURN("lane.pack");
  HVD_ASSIGN_OR_RETURN(const bool moves_bytes, pack());
  return moves_bytes ? &call_ : nullptr;
}

kernels::Scaling scaling_of(const wire::Response& response, int set_size) {
  kernels::Scaling scaling{response.prescale, response.postscale};
  if (response.reduce_op != ReduceOp::kAverage) return scaling;
  if (is_integer(response.dtype) && response.postscale == 1.0) {
    scaling.divisor = set_size;
  } else {
    scaling.after /= set_size;
  }
  return scaling;
}

}  // namespace hvd::engine
