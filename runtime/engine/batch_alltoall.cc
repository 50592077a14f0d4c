// Batches of one alltoall: two collectives.
#include <algorithm>

#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

// First every rank learns how many rows it gets from each other, and how many that one sends in all; then the rows are
// moved.
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
    for (const std::int64_t rows : operation().splits) told_.push_back({rows, operation().input.shape.front()});
    heard_.resize(ranks_);
    call_.op = OpType::kAlltoall;
    call_.dtype = DataType::kInt64;
    call_.input = told_.data();
    call_.output = heard_.data();
    call_.rank_counts.assign(ranks_, 2);
    call_.receive_counts.assign(ranks_, 2);
  }

  Status move_rows() {
    Shape shape = operation().input.shape;
    const std::int64_t row = row_elements(shape);
    shape.front() = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      shape.front() += heard_[r].to_you;
      state().received_splits.push_back(heard_[r].to_you);
      call_.rank_counts[r] = operation().splits[r] * row;
      call_.receive_counts[r] = heard_[r].to_you * row;
      call_.most_sent = std::max(call_.most_sent, heard_[r].to_all * row);
    }
    trace(context_.timeline, batch_, "ALLOCATE_OUTPUT");
    HVD_ASSIGN_OR_RETURN(call_.output, operation().allocate_output(shape));
    const collectives::CallTraits traits = traits_of(batch_);
    call_.dtype = traits.dtype;
    call_.memory = traits.memory;
    if (call_.memory == collectives::MemoryKind::kDevice) call_.use = device_use(batch_, context_);
    call_.input = operation().input.data;
    state().output_shape = std::move(shape);
    return Status::ok();
  }

  const Batch& batch_;
  const BatchContext context_;
  const std::size_t ranks_;
  struct Rows {
    std::int64_t to_you;
    std::int64_t to_all;
  };
  std::vector<Rows> told_;
  std::vector<Rows> heard_;
  collectives::CollectiveCall call_;
  int stage_ = 0;  // collectives prepared so far
};

}  // namespace

std::unique_ptr<BatchRun> make_alltoall_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<AlltoallRun>(batch, context);
}

}  // namespace hvd::engine
