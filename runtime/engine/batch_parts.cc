// Batches of tensors that are made of a part of each rank: those that are gathered, and those that are reduced and
// scattered.
#include <numeric>

#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

class PartsRun : public SingleCollective {
 public:
  using SingleCollective::SingleCollective;

 protected:
  // Allocates the output and adds the tensor.
  virtual Status allocate(const BatchItem& item) = 0;
  // All tensors, which have so many elements on all ranks together.
  virtual Status pack_all(std::int64_t total) = 0;
  // What was packed so, to the outputs.
  virtual void unpack_all() = 0;

  std::size_t ranks() const { return static_cast<std::size_t>(context_.set.size()); }
  std::size_t own() const { return static_cast<std::size_t>(context_.set_rank); }
  std::size_t bytes_of(const collectives::Segment& tensor, std::size_t rank) const {
    return collectives::bytes_of(first().dtype, tensor.rank_counts[rank]);
  }

  std::vector<collectives::Segment> tensors_;

 private:
  void unpack() final {
    if (!must_pack()) return;
    trace("MEMCPY_OUT_FUSION_BUFFER");
    unpack_all();
  }

  Result<bool> pack() final {
    trace("ALLOCATE_OUTPUT");
    for (const BatchItem& item : batch_.items) HVD_RETURN_IF_ERROR(allocate(item));
    std::int64_t total = 0;
    for (const collectives::Segment& tensor : tensors_) {
      total += std::accumulate(tensor.rank_counts.begin(), tensor.rank_counts.end(), std::int64_t{0});
    }
    if (total == 0) return false;
    if (must_pack()) {
      trace("MEMCPY_IN_FUSION_BUFFER");
      HVD_RETURN_IF_ERROR(pack_all(total));
      return true;
    }
    if (is_reduction(call_.op)) call_.scaling = scaling();
    if (tensors_.size() > 1) {
      call_.segments = tensors_;
      return true;
    }
    call_.input = tensors_.front().input;
    call_.output = tensors_.front().output;
    if (call_.op == OpType::kAllgather) call_.count = tensors_.front().count;
    call_.rank_counts = tensors_.front().rank_counts;
    return true;
  }
};

// A tensor's rows come from each rank in turn. Packed, the staging memory holds the first rank's rows of all tensors,
// then the second rank's, and so on: each rank's part is one piece, and each tensor's result is collected from them.
class GatherRun final : public PartsRun {
 public:
  using PartsRun::PartsRun;

 private:
  void unpack_all() override {
    std::vector<std::byte*> ends;
    for (const collectives::Segment& tensor : tensors_) ends.push_back(static_cast<std::byte*>(tensor.output));
    const std::byte* from = packed_.data();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t bytes = bytes_of(tensors_[i], rank);
        memory().copy(ends[i], from, bytes);
        ends[i] += bytes;
        from += bytes;
      }
    }
  }

  Status allocate(const BatchItem& item) override {
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

  Status pack_all(std::int64_t total) override {
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
      memory().copy(end, tensor.input, bytes_of(tensor, own()));
      end += bytes_of(tensor, own());
    }
    return Status::ok();
  }

  std::span<std::byte> packed_;
};

// Rows of a reducescatter's result: equal shares, and one more for each of the first ranks until none is left.
std::int64_t rows_of(const Shape& shape, int set_rank, int set_size) {
  HVD_CHECK(set_size > 0, "a process set has members");
  return shape.front() / set_size + (set_rank < shape.front() % set_size ? 1 : 0);
}

// Packed, the staging memory holds all tensors' rows for the first rank, then all rows for the second, and so on. A
// single tensor looks like that already.
class ScatterRun final : public PartsRun {
 public:
  using PartsRun::PartsRun;

 private:
  void unpack_all() override {
    const auto* result = static_cast<const std::byte*>(call_.output);
    for (const collectives::Segment& tensor : tensors_) {
      const std::int64_t n = tensor.rank_counts[own()];
      memory().scale_result(call_.dtype, tensor.output, result, n, scaling());
      result += static_cast<std::size_t>(n) * element();
    }
  }

  Status allocate(const BatchItem& item) override {
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

  Status pack_all(std::int64_t total) override {
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
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<BatchRun> make_gather_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<GatherRun>(batch, context);
}

std::unique_ptr<BatchRun> make_scatter_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<ScatterRun>(batch, context);
}

}  // namespace hvd::engine
