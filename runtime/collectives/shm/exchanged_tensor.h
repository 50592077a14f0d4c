#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/exchange_slots.h"

namespace hvd::collectives {

// A tensor that the members of a set exchange in one slot, use after use: this member's side. Up to
// ExchangeSlots::kBytes it lies in the slot, else in two buffers of memory that this member lends. Confined to one
// thread at a time.
class ExchangedTensor {
 public:
  using State = ExchangeSlots::State;

  ExchangedTensor() = default;
  ExchangedTensor(std::shared_ptr<ExchangeSlots> slots, std::size_t slot) : slots_(std::move(slots)) {
    use_.slot = slot;
    use_.generation = 0;
  }

  // A new generation of the slot, of tensors of so many bytes, to be called first. False: there are no more.
  bool renew(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }

  // The use that this member will come to.
  void begin_use() { ++use_.number; }
  const ExchangeSlots::Use& use() const { return use_; }
  // Leaves the elements for the others. Also kSealed, for all, where there is no memory to lend.
  State come(const void* elements);
  State look() const { return slots_->look(use_); }
  // Of a use that this member has begun. Wakes the others.
  State seal();
  // The elements of all, in the order of the members and with the roundings of other calls in shared memory. `elements`
  // are this member's, and may be `output`. Requires: the use is complete. kInternal when a member left what is none.
  Status reduce(DataType dtype, ReduceOp op, const kernels::Scaling& scaling, const void* elements, void* output);

 private:
  const std::byte* operand(int member, const std::byte* own) const;
  // Whether there is room for the elements where others can read them.
  bool has_room();

  std::shared_ptr<ExchangeSlots> slots_;
  ExchangeSlots::Use use_;
  std::size_t bytes_ = 0;
  std::span<std::byte> lent_{};  // two buffers
  std::vector<const std::byte*> operands_{};
};

}  // namespace hvd::collectives
