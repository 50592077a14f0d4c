// Batches of one alltoall: two collectives.
#include <numeric>

#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

// First every rank learns how many rows it gets from each other, then the rows are moved.
class AlltoallRun final : public BatchRun {
 public:
  AlltoallRun(const Batch& batch, const BatchContext& context)
      : batch_(batch), context_(context), ranks_(static_cast<std::size_t>(context.set.size())) {}

  Result<const collectives::CollectiveCall*> next() override {
    if (batch_.items.front().pending == nullptr) return Status::internal("alltoall with a joined rank");
    switch (stage_++) {
      case 0: exchange_splits(); return &call_;
      case 1: HVD_RETURN_IF_ERROR(move_rows()); return &call_;
      default: return nullptr;
    }
  }
  bool has_more() const override { return stage_ == 1; }

 private:
  const Operation& operation() const { return batch_.items.front().pending->operation; }
  Handle::State& state() const { return batch_.items.front().pending->handle.state(); }

  // Always in host memory, wherever the rows are.
  void exchange_splits() {
    state().received_splits.assign(ranks_, 0);
    call_.op = OpType::kAlltoall;
    call_.dtype = DataType::kInt64;
    call_.input = operation().splits.data();
    call_.output = state().received_splits.data();
    call_.rank_counts.assign(ranks_, 1);
    call_.receive_counts.assign(ranks_, 1);
  }

  Status move_rows() {
    const std::vector<std::int64_t>& received = state().received_splits;
    Shape shape = operation().input.shape;
    const std::int64_t row = row_elements(shape);
    shape.front() = std::accumulate(received.begin(), received.end(), std::int64_t{0});
    HVD_ASSIGN_OR_RETURN(call_.output, operation().allocate_output(shape));
    const collectives::CallTraits traits = traits_of(batch_);
    call_.dtype = traits.dtype;
    call_.memory = traits.memory;
    if (call_.memory == collectives::MemoryKind::kDevice) call_.use = device_use(batch_, context_);
    call_.input = operation().input.data;
    for (std::size_t r = 0; r < ranks_; ++r) {
      call_.rank_counts[r] = operation().splits[r] * row;
      call_.receive_counts[r] = received[r] * row;
    }
    state().output_shape = std::move(shape);
    return Status::ok();
  }

  const Batch& batch_;
  const BatchContext context_;
  const std::size_t ranks_;
  collectives::CollectiveCall call_;
  int stage_ = 0;  // collectives prepared so far
};

}  // namespace

std::unique_ptr<BatchRun> make_alltoall_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<AlltoallRun>(batch, context);
}

}  // namespace hvd::engine
