// Batches that are gathered.
#include <numeric>

#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

// A tensor's rows come from each rank in turn. Packed, the staging memory holds the first rank's rows of all tensors,
// then the second rank's, and so on: each rank's part is one piece, and each tensor's result is collected from them.
class GatherRun final : public SingleCollective {
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
    if (tensors_.size() > 1) {
      call_.segments = tensors_;
      return true;
    }
    call_.input = tensors_.front().input;
    call_.output = tensors_.front().output;
    call_.count = tensors_.front().count;
    call_.rank_counts = tensors_.front().rank_counts;
    return true;
  }

  void unpack() override {
    if (!must_pack()) return;
    trace("MEMCPY_OUT_FUSION_BUFFER");
    std::vector<std::byte*> ends;
    for (const collectives::Segment& tensor : tensors_) ends.push_back(static_cast<std::byte*>(tensor.output));
    const std::byte* from = packed_.data();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t bytes = bytes_from(tensors_[i], rank);
        memory().copy(ends[i], from, bytes);
        ends[i] += bytes;
        from += bytes;
      }
    }
  }

  std::size_t ranks() const { return static_cast<std::size_t>(context_.set.size()); }
  std::size_t own() const { return static_cast<std::size_t>(context_.set_rank); }
  std::size_t bytes_from(const collectives::Segment& tensor, std::size_t rank) const {
    return static_cast<std::size_t>(tensor.rank_counts[rank]) * element();
  }

  Status allocate(const BatchItem& item) {
    if (item.pending == nullptr) return Status::internal("allgather with a joined rank");
    const Operation& operation = item.pending->operation;
    Shape shape = operation.input.shape;
    const std::vector<std::int64_t>& rows = item.response->first_dims;
    collectives::Segment tensor;
    tensor.input = operation.input.data;
    tensor.count = num_elements(shape);
    for (const std::int64_t n : rows) tensor.rank_counts.push_back(n * row_elements(shape));
    shape.front() = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    HVD_ASSIGN_OR_RETURN(tensor.output, operation.allocate_output(shape));
    tensors_.push_back(std::move(tensor));
    Handle::State& state = item.pending->handle.state();
    state.output_shape = std::move(shape);
    state.received_splits = rows;
    return Status::ok();
  }

  Result<bool> pack_all(std::int64_t total) {
    trace("MEMCPY_IN_FUSION_BUFFER");
    HVD_ASSIGN_OR_RETURN(packed_, context_.staging.reserve(static_cast<std::size_t>(total) * element()));
    call_.rank_counts.assign(ranks(), 0);
    for (const collectives::Segment& tensor : tensors_) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) call_.rank_counts[rank] += tensor.rank_counts[rank];
    }
    const auto before = call_.rank_counts.begin() + context_.set_rank;
    const std::int64_t start = std::accumulate(call_.rank_counts.begin(), before, std::int64_t{0});
    std::byte* end = packed_.data() + static_cast<std::size_t>(start) * element();
    call_.input = end;
    call_.output = packed_.data();
    call_.count = call_.rank_counts[own()];
    for (const collectives::Segment& tensor : tensors_) {
      memory().copy(end, tensor.input, bytes_from(tensor, own()));
      end += bytes_from(tensor, own());
    }
    return true;
  }

  std::vector<collectives::Segment> tensors_;
  std::span<std::byte> packed_;
};

}  // namespace

std::unique_ptr<BatchRun> make_gather_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<GatherRun>(batch, context);
}

}  // namespace hvd::engine
