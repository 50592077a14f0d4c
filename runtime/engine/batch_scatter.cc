// Batches that are reduced and scattered.
#include <numeric>

#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

// Rows of a reducescatter's result: equal shares, and one more for each of the first ranks until none is left.
std::int64_t rows_of(const Shape& shape, int set_rank, int set_size) {
  HVD_CHECK(set_size > 0, "a process set has members");
  return shape.front() / set_size + (set_rank < shape.front() % set_size ? 1 : 0);
}

// Packed, the staging memory holds all tensors' rows for the first rank, then all rows for the second, and so on. A
// single tensor looks like that already.
class ScatterRun final : public SingleCollective {
 public:
  using SingleCollective::SingleCollective;

 private:
  Result<bool> pack() override {
    trace("ALLOCATE_OUTPUT");
    for (const BatchItem& item : batch_.items) HVD_RETURN_IF_ERROR(allocate(item));
    std::int64_t total = 0;
    for (const collectives::Segment& tensor : tensors_) {
      total += std::accumulate(tensor.rank_counts.begin(), tensor.rank_counts.end(), std::int64_t{0});
    }
    if (total == 0) return false;
    if (must_pack()) return pack_all(total);
    call_.scaling = scaling();
    if (tensors_.size() > 1) {
      call_.segments = tensors_;
      return true;
    }
    call_.input = tensors_.front().input;
    call_.output = tensors_.front().output;
    call_.rank_counts = tensors_.front().rank_counts;
    return true;
  }

  void unpack() override {
    if (!must_pack()) return;
    trace("MEMCPY_OUT_FUSION_BUFFER");
    const auto* result = static_cast<const std::byte*>(call_.output);
    for (const collectives::Segment& tensor : tensors_) {
      const std::int64_t n = tensor.rank_counts[own()];
      memory().scale_result(call_.dtype, tensor.output, result, n, scaling());
      result += static_cast<std::size_t>(n) * element();
    }
  }

  std::size_t ranks() const { return static_cast<std::size_t>(context_.set.size()); }
  std::size_t own() const { return static_cast<std::size_t>(context_.set_rank); }

  Status allocate(const BatchItem& item) {
    if (item.pending == nullptr) return Status::internal("reducescatter with a joined rank");
    const int size = context_.set.size();
    Shape shape = item.response->shape;
    collectives::Segment tensor;
    tensor.input = item.pending->operation.input.data;
    for (int r = 0; r < size; ++r) tensor.rank_counts.push_back(rows_of(shape, r, size) * row_elements(shape));
    shape.front() = rows_of(shape, context_.set_rank, size);
    HVD_ASSIGN_OR_RETURN(tensor.output, item.pending->operation.allocate_output(shape));
    tensor.count = num_elements(shape);
    tensors_.push_back(std::move(tensor));
    item.pending->handle.state().output_shape = std::move(shape);
    return Status::ok();
  }

  Result<bool> pack_all(std::int64_t total) {
    trace("MEMCPY_IN_FUSION_BUFFER");
    HVD_ASSIGN_OR_RETURN(const std::span<std::byte> packed,
                         context_.staging.reserve(static_cast<std::size_t>(total) * element()));
    std::vector<const std::byte*> sources;
    for (const collectives::Segment& tensor : tensors_) sources.push_back(static_cast<const std::byte*>(tensor.input));
    call_.input = packed.data();
    call_.rank_counts.assign(ranks(), 0);
    std::byte* end = packed.data();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      // What is packed is the lane's: this rank's own part can take the result.
      if (rank == own()) call_.output = end;
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::int64_t n = tensors_[i].rank_counts[rank];
        const std::size_t bytes = static_cast<std::size_t>(n) * element();
        memory().scale_copy(call_.dtype, end, sources[i], n, first().prescale);
        call_.rank_counts[rank] += n;
        end += bytes;
        sources[i] += bytes;
      }
    }
    return true;
  }

  std::vector<collectives::Segment> tensors_;
};

}  // namespace

std::unique_ptr<BatchRun> make_scatter_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<ScatterRun>(batch, context);
}

}  // namespace hvd::engine
