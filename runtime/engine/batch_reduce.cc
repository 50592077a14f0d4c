// The half of BatchRunner that reduces: allreduce and adasum.

#include "runtime/engine/batch_runner.h"
#include "runtime/engine/handle_state.h"

namespace hvd::engine {

namespace {

collectives::CollectiveCall make_call(const wire::Response& response) {
  collectives::CollectiveCall call;
  call.op = response.op;
  call.dtype = response.dtype;
  call.reduce_op = wire_reduce_op(response.reduce_op);
  return call;
}

// Elements of each tensor in the fusion buffer, with the padding behind it: that is zeros, which no product sees.
std::vector<std::int64_t> tensor_counts(const Batch& batch, std::size_t element) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < batch.offsets.size(); ++i) {
    const std::uint64_t end = i + 1 < batch.offsets.size() ? batch.offsets[i + 1] : batch.bytes;
    counts.push_back(static_cast<std::int64_t>((end - batch.offsets[i]) / element));
  }
  return counts;
}

}  // namespace

Status BatchRunner::reduce(Batch& batch) {
  const bool alone = batch.items.size() == 1 && batch.items.front().entry != nullptr;
  return alone ? reduce_alone(batch.items.front()) : reduce_fused(batch);
}

Status BatchRunner::reduce_alone(const BatchItem& item) {
  const wire::Response& response = *item.response;
  const Operation& operation = item.entry->operation;
  collectives::CollectiveCall request = make_call(response);
  request.input = operation.input.data;
  request.output = operation.output;
  request.count = num_elements(response.shape);
  request.scaling = scaling_of(response);
  if (response.op == OpType::kAdasum) request.tensor_counts = {request.count};
  item.entry->handle.state().output_shape = response.shape;
  return request.count == 0 ? Status::ok() : call(request);
}

Status BatchRunner::reduce_fused(Batch& batch) {
  const wire::Response& first = *batch.items.front().response;
  if (batch.bytes == 0) return Status::ok();
  const kernels::Scaling scaling = scaling_of(first);
  HVD_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, buffer_->reserve(batch.bytes));
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    const std::int64_t n = num_elements(item.response->shape);
    const std::uint64_t bytes = static_cast<std::uint64_t>(n) * element_size(first.dtype);
    std::byte* place = buffer.data() + batch.offsets[i];
    // Padding takes part in the reduction: zeros keep it free of surprises such as NaN arithmetic.
    if (batch.offsets[i] > filled) memory_->zero(buffer.data() + filled, batch.offsets[i] - filled);
    filled = batch.offsets[i] + bytes;
    if (item.entry == nullptr) {
      memory_->zero(place, bytes);
    } else if (n > 0) {
      memory_->scale_copy(first.dtype, place, item.entry->operation.input.data, n, scaling.before);
    }
  }
  if (batch.bytes > filled) memory_->zero(buffer.data() + filled, batch.bytes - filled);

  collectives::CollectiveCall request = make_call(first);
  request.output = buffer.data();
  request.count = static_cast<std::int64_t>(batch.bytes / element_size(first.dtype));
  if (first.op == OpType::kAdasum) request.tensor_counts = tensor_counts(batch, element_size(first.dtype));
  // The zeros of a rank that has joined: the others let the collective scale, and what it does is agreed.
  if (batch.items.size() == 1) request.scaling = scaling;
  HVD_RETURN_IF_ERROR(call(request));

  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const BatchItem& item = batch.items[i];
    if (item.entry == nullptr) continue;
    item.entry->handle.state().output_shape = item.response->shape;
    memory_->scale_result(first.dtype, item.entry->operation.output, buffer.data() + batch.offsets[i],
                          num_elements(item.response->shape), scaling);
  }
  return Status::ok();
}

}  // namespace hvd::engine
