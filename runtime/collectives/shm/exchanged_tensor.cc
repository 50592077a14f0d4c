#include "runtime/collectives/shm/exchanged_tensor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives {

bool ExchangedTensor::renew(std::size_t bytes) {
  if (use_.generation == ExchangeSlots::kGenerations) return false;
  ++use_.generation;
  use_.number = 0;
  bytes_ = bytes;
  return true;
}

// A tensor grows in a new generation, and all members are through with the one before: so nobody reads what it leaves.
bool ExchangedTensor::has_room() {
  if (lent_.size() >= 2 * bytes_) return true;
  const std::span<std::byte> larger = slots_->lend(2 * bytes_);
  if (larger.empty()) return false;
  slots_->take_back(std::exchange(lent_, larger));
  return true;
}

ExchangedTensor::State ExchangedTensor::come(const void* elements) {
  const std::span input(static_cast<const std::byte*>(elements), bytes_);
  if (bytes_ <= ExchangeSlots::kBytes) return slots_->come(use_, input);
  if (!has_room()) return seal();
  const std::span mine = lent_.subspan(use_.number % 2 * (lent_.size() / 2), bytes_);
  shm::copy_bytes(mine.data(), input.data(), bytes_);
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
                               void* output) {
  operands_.clear();
  for (int member = 0; member < slots_->members(); ++member) {
    operands_.push_back(operand(member, static_cast<const std::byte*>(elements)));
    if (operands_.back() == nullptr) return Status::internal("a tensor lies outside the memory that ranks share");
  }
  for (std::size_t at = 0; at < bytes_; at += shm::kPieceBytes) {
    std::byte* const sum = static_cast<std::byte*>(output) + at;
    const auto count = static_cast<std::int64_t>(std::min(shm::kPieceBytes, bytes_ - at) / element_size(dtype));
    for (std::size_t member = 1; member < operands_.size(); ++member) {
      const kernels::ReduceStage stage{member == 1, true, member + 1 == operands_.size()};
      const std::byte* const left = member == 1 ? operands_[0] + at : sum;
      kernels::reduce_scaled(dtype, op, sum, left, operands_[member] + at, count, scaling, stage);
    }
  }
  return Status::ok();
}

}  // namespace hvd::collectives
