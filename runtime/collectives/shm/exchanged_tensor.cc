#include "runtime/collectives/shm/exchanged_tensor.h"

#include <algorithm>
#include <span>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives {

bool ExchangedTensor::renew(std::size_t bytes) {
  if (use_.generation == ExchangeSlots::kGenerations) return false;
  ++use_.generation;
  use_.number = 0;
  bytes_ = bytes;
  return true;
}

ExchangedTensor::State ExchangedTensor::come(const void* elements) {
  const std::span input(static_cast<const std::byte*>(elements), bytes_);
  if (bytes_ <= ExchangeSlots::kBytes) return slots_->come(use_, input);
  if (room_ < bytes_) {
    lent_ = slots_->lend(2 * bytes_);
    room_ = lent_ == nullptr ? 0 : bytes_;
  }
  if (lent_ == nullptr) return seal();
  const std::span mine(lent_ + use_.number % 2 * room_, bytes_);
  std::ranges::copy(input, mine.begin());
  return slots_->come_with_lent(use_, mine);
}

ExchangedTensor::State ExchangedTensor::seal() {
  const State state = slots_->seal(use_);
  slots_->ring_others();
  return state;
}

// The first two operands may be where the result goes; a later one would be overwritten before it is read, so there
// this member's copy is taken.
const std::byte* ExchangedTensor::operand(int member, const std::byte* own) const {
  if (member == slots_->own() && member <= 1) return own;
  if (bytes_ <= ExchangeSlots::kBytes) return slots_->elements(use_, member);
  return slots_->lent_elements(use_, member, bytes_);
}

Status ExchangedTensor::reduce(DataType dtype, ReduceOp op, const kernels::Scaling& scaling, const void* elements,
                               void* output) const {
  const auto* const own = static_cast<const std::byte*>(elements);
  const int members = slots_->members();
  for (int member = 0; member < members; ++member) {
    if (operand(member, own) == nullptr) return Status::internal("a tensor lies outside the memory that ranks share");
  }
  for (std::size_t at = 0; at < bytes_; at += shm::kPieceBytes) {
    std::byte* const sum = static_cast<std::byte*>(output) + at;
    const auto count = static_cast<std::int64_t>(std::min(shm::kPieceBytes, bytes_ - at) / element_size(dtype));
    for (int member = 1; member < members; ++member) {
      const kernels::ReduceStage stage{member == 1, true, member + 1 == members};
      const std::byte* const left = member == 1 ? operand(0, own) + at : sum;
      kernels::reduce_scaled(dtype, op, sum, left, operand(member, own) + at, count, scaling, stage);
    }
  }
  return Status::ok();
}

}  // namespace hvd::collectives
