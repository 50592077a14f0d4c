// The part of BatchRunner that gathers several tensors in one collective.
#include <numeric>

#include "runtime/engine/batch_runner.h"
#include "runtime/engine/handle_state.h"

namespace hvd::engine {

namespace {

// Bytes of one row: of everything but the first dimension.
std::size_t row_bytes(const wire::Response& response) {
  const std::int64_t row =
      std::accumulate(response.shape.begin() + 1, response.shape.end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(row) * element_size(response.dtype);
}

std::size_t part_bytes(const wire::Response& response, std::size_t set_rank) {
  return static_cast<std::size_t>(response.first_dims[set_rank]) * row_bytes(response);
}

}  // namespace

// The buffer holds the first rank's rows of all tensors, then the second rank's, and so on: each rank's part is one
// piece, and each tensor's result is gathered from it.
Status BatchRunner::allgather_fused(const Batch& batch) {
  std::vector<std::byte*> outputs;
  for (const BatchItem& item : batch.items) {
    if (item.entry == nullptr) return Status::internal("allgather with a joined rank");
    Shape shape = item.response->shape;
    const auto& rows = item.response->first_dims;
    shape.front() = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    HVD_ASSIGN_OR_RETURN(void* const output, item.entry->operation.allocate_output(shape));
    outputs.push_back(static_cast<std::byte*>(output));
    Handle::State& state = item.entry->handle.state();
    state.output_shape = std::move(shape);
    state.received_splits = rows;
  }
  const wire::Response& first = *batch.items.front().response;
  const auto size = static_cast<std::size_t>(set_.size());
  std::vector<std::size_t> starts(size + 1);  // of each rank's part
  collectives::CollectiveCall request;
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::size_t bytes = 0;
    for (const BatchItem& item : batch.items) bytes += part_bytes(*item.response, rank);
    starts[rank + 1] = starts[rank] + bytes;
    request.rank_counts.push_back(static_cast<std::int64_t>(bytes / element_size(first.dtype)));
  }
  if (starts.back() == 0) return Status::ok();

  HVD_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, buffer_->reserve(starts.back()));
  const auto own = static_cast<std::size_t>(set_rank_);
  std::byte* place = buffer.data() + starts[own];
  request.input = place;
  for (const BatchItem& item : batch.items) {
    const std::size_t bytes = part_bytes(*item.response, own);
    memory_->copy(place, item.entry->operation.input.data, bytes);
    place += bytes;
  }
  request.op = OpType::kAllgather;
  request.dtype = first.dtype;
  request.output = buffer.data();
  request.count = request.rank_counts[own];
  HVD_RETURN_IF_ERROR(call(request));

  const std::byte* from = buffer.data();
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t bytes = part_bytes(*batch.items[i].response, rank);
      memory_->copy(outputs[i], from, bytes);
      outputs[i] += bytes;
      from += bytes;
    }
  }
  return Status::ok();
}

}  // namespace hvd::engine
