// The half of BatchRunner that gives each rank its part: reducescatter and alltoall.
#include <numeric>

#include "runtime/engine/batch_runner.h"
#include "runtime/engine/handle_state.h"

namespace hvd::engine {

namespace {

// Elements of one row: of everything but the first dimension.
std::int64_t row_elements(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Rows of a reducescatter's result: equal shares, and one more for each of the first ranks until none is left.
std::int64_t rows_of(const Shape& shape, int set_rank, int set_size) {
  return shape.front() / set_size + (set_rank < shape.front() % set_size ? 1 : 0);
}

std::int64_t elements_of(const Shape& shape, int set_rank, int set_size) {
  return rows_of(shape, set_rank, set_size) * row_elements(shape);
}

}  // namespace

// The input of the collective: all tensors' rows for the first rank, then all rows for the second, and so on. A single
// tensor looks like that already, and the collective scales it.
Result<const void*> BatchRunner::pack_for_scatter(const Batch& batch) {
  const wire::Response& first = *batch.items.front().response;
  const std::size_t element = element_size(first.dtype);
  if (batch.items.size() == 1) {
    return static_cast<const void*>(batch.items.front().entry->operation.input.data);
  }
  std::int64_t total = 0;
  for (const BatchItem& item : batch.items) total += num_elements(item.response->shape);
  HVD_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, buffer_->reserve(static_cast<std::size_t>(total) * element));
  std::vector<const std::byte*> sources;
  for (const BatchItem& item : batch.items) {
    sources.push_back(static_cast<const std::byte*>(item.entry->operation.input.data));
  }
  std::byte* place = buffer.data();
  for (int rank = 0; rank < set_.size(); ++rank) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::int64_t n = elements_of(batch.items[i].response->shape, rank, set_.size());
      if (n == 0) continue;
      memory_->scale_copy(first.dtype, place, sources[i], n, first.prescale);
      place += static_cast<std::size_t>(n) * element;
      sources[i] += static_cast<std::size_t>(n) * element;
    }
  }
  return static_cast<const void*>(buffer.data());
}

Status BatchRunner::reducescatter(Batch& batch) {
  const wire::Response& first = *batch.items.front().response;
  const std::size_t element = element_size(first.dtype);
  collectives::CollectiveCall request;
  request.op = OpType::kReducescatter;
  request.dtype = first.dtype;
  request.rank_counts.assign(static_cast<std::size_t>(set_.size()), 0);
  std::vector<void*> outputs;
  for (const BatchItem& item : batch.items) {
    if (item.entry == nullptr) return Status::internal("reducescatter with a joined rank");
    Shape shape = item.response->shape;
    for (int r = 0; r < set_.size(); ++r) {
      request.rank_counts[static_cast<std::size_t>(r)] += elements_of(shape, r, set_.size());
    }
    shape.front() = rows_of(shape, set_rank_, set_.size());
    HVD_ASSIGN_OR_RETURN(void* const output, item.entry->operation.allocate_output(shape));
    outputs.push_back(output);
    item.entry->handle.state().output_shape = std::move(shape);
  }
  const auto own = request.rank_counts.begin() + set_rank_;
  if (std::accumulate(request.rank_counts.begin(), request.rank_counts.end(), std::int64_t{0}) == 0)
    return Status::ok();

  HVD_ASSIGN_OR_RETURN(request.input, pack_for_scatter(batch));
  const auto before = static_cast<std::size_t>(std::accumulate(request.rank_counts.begin(), own, std::int64_t{0}));
  const bool is_packed = request.input != batch.items.front().entry->operation.input.data;
  const kernels::Scaling scaling = scaling_of(first);
  if (!is_packed) {
    request.output = outputs.front();
    request.scaling = scaling;
    return call(request);
  }
  // What is packed is ours: its own part can take the result.
  auto* result = static_cast<std::byte*>(const_cast<void*>(request.input)) + before * element;
  request.output = result;
  HVD_RETURN_IF_ERROR(call(request));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::int64_t n = elements_of(batch.items[i].response->shape, set_rank_, set_.size());
    memory_->scale_result(first.dtype, outputs[i], result, n, scaling);
    result += static_cast<std::size_t>(n) * element;
  }
  return Status::ok();
}

Status BatchRunner::alltoall(const BatchItem& item) {
  const wire::Response& response = *item.response;
  if (item.entry == nullptr) return Status::internal("alltoall with a joined rank");
  const Operation& operation = item.entry->operation;
  Handle::State& state = item.entry->handle.state();
  // First what each rank is going to get, then the rows.
  const auto size = static_cast<std::size_t>(set_.size());
  state.received_splits.assign(size, 0);
  collectives::CollectiveCall request;
  request.op = OpType::kAlltoall;
  request.dtype = DataType::kInt64;
  request.input = operation.splits.data();
  request.output = state.received_splits.data();
  request.rank_counts.assign(size, 1);
  request.receive_counts.assign(size, 1);
  HVD_RETURN_IF_ERROR(call(request));

  Shape shape = operation.input.shape;
  const std::int64_t row = row_elements(shape);
  shape.front() = std::accumulate(state.received_splits.begin(), state.received_splits.end(), std::int64_t{0});
  HVD_ASSIGN_OR_RETURN(request.output, operation.allocate_output(shape));
  state.output_shape = shape;
  request.dtype = response.dtype;
  request.input = operation.input.data;
  for (std::size_t r = 0; r < size; ++r) {
    request.rank_counts[r] = operation.splits[r] * row;
    request.receive_counts[r] = state.received_splits[r] * row;
  }
  return call(request);
}

}  // namespace hvd::engine
