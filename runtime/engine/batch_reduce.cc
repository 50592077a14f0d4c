// Batches that are reduced: allreduce and adasum.
#include "runtime/engine/batch_run.h"
#include "runtime/engine/pending_operation.h"

namespace hvd::engine {

namespace {

class ReduceRun final : public SingleCollective {
 public:
  using SingleCollective::SingleCollective;

 private:
  Result<bool> pack() override {
    for (const BatchItem& item : batch_.items) {
      if (item.pending != nullptr) item.pending->handle.state().output_shape = item.response->shape;
    }
    if (batch_.bytes == 0) return false;
    if (must_pack()) return pack_all();
    call_.scaling = scaling();
    return batch_.items.size() > 1 ? list() : alone();
  }

  void unpack() override {
    if (!must_pack()) return;
    trace("MEMCPY_OUT_FUSION_BUFFER");
    for (std::size_t i = 0; i < batch_.items.size(); ++i) {
      const BatchItem& item = batch_.items[i];
      if (item.pending == nullptr) continue;
      memory().scale_result(call_.dtype, item.pending->operation.output, packed_.data() + batch_.offsets[i],
                            elements(i), scaling());
    }
  }

  std::int64_t elements(std::size_t i) const { return num_elements(batch_.items[i].response->shape); }
  std::size_t bytes(std::size_t i) const { return static_cast<std::size_t>(elements(i)) * element(); }

  Result<bool> alone() {
    HVD_ASSIGN_OR_RETURN(const collectives::Segment tensor, where_it_lies(0));
    call_.input = tensor.input;
    call_.output = tensor.output;
    call_.count = tensor.count;
    if (call_.op == OpType::kAdasum) call_.tensor_counts = {call_.count};
    return call_.count > 0;
  }

  Result<bool> list() {
    call_.segments.reserve(batch_.items.size());
    for (std::size_t i = 0; i < batch_.items.size(); ++i) {
      HVD_ASSIGN_OR_RETURN(collectives::Segment tensor, where_it_lies(i));
      call_.segments.push_back(std::move(tensor));
    }
    return true;
  }

  // The user's memory; staged zeros when this rank has joined. What the others let the collective scale, it scales.
  Result<collectives::Segment> where_it_lies(std::size_t i) {
    const BatchItem& item = batch_.items[i];
    if (item.pending != nullptr) {
      return collectives::Segment{item.pending->operation.input.data, item.pending->operation.output, elements(i)};
    }
    if (call_.memory == collectives::MemoryKind::kDevice) return collectives::Segment{nullptr, nullptr, elements(i)};
    HVD_ASSIGN_OR_RETURN(packed_, context_.staging.reserve(batch_.bytes));
    std::byte* const zeros = packed_.data() + batch_.offsets[i];
    memory().zero(zeros, bytes(i));
    return collectives::Segment{zeros, zeros, elements(i)};
  }

  Result<bool> pack_all() {
    trace("MEMCPY_IN_FUSION_BUFFER");
    HVD_ASSIGN_OR_RETURN(packed_, context_.staging.reserve(batch_.bytes));
    std::size_t filled = 0;
    for (std::size_t i = 0; i < batch_.items.size(); ++i) {
      // Padding takes part in the reduction: zeros keep it free of surprises such as NaN arithmetic.
      zero_between(filled, batch_.offsets[i]);
      filled = batch_.offsets[i] + bytes(i);
      const PendingOperationPtr& pending = batch_.items[i].pending;
      if (pending == nullptr) {
        zero_between(batch_.offsets[i], filled);
      } else {
        memory().scale_copy(call_.dtype, packed_.data() + batch_.offsets[i], pending->operation.input.data, elements(i),
                            scaling().before);
      }
    }
    zero_between(filled, batch_.bytes);
    call_.output = packed_.data();
    call_.count = static_cast<std::int64_t>(batch_.bytes / element());
    if (call_.op == OpType::kAdasum) count_tensors();
    return true;
  }

  void zero_between(std::size_t begin, std::size_t end) {
    if (begin < end) memory().zero(packed_.data() + begin, end - begin);
  }

  // Each with the padding behind it: that is zeros, which no product sees.
  void count_tensors() {
    for (std::size_t i = 0; i < batch_.offsets.size(); ++i) {
      const std::uint64_t end = i + 1 < batch_.offsets.size() ? batch_.offsets[i + 1] : batch_.bytes;
      call_.tensor_counts.push_back(static_cast<std::int64_t>((end - batch_.offsets[i]) / element()));
    }
  }

  std::span<std::byte> packed_;
};

}  // namespace

std::unique_ptr<BatchRun> make_reduce_run(const Batch& batch, const BatchContext& context) {
  return std::make_unique<ReduceRun>(batch, context);
}

}  // namespace hvd::engine
