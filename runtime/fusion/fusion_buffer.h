#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace hvd::fusion {

// Memory into which the tensors of a batch are copied. Owned by one lane and confined to its thread. Allocated when
// first needed, grown when a batch needs more, kept until the lane ends. Contents do not survive growing.
class FusionBuffer {
 public:
  // Null when there is no such memory.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  explicit FusionBuffer(Allocate allocate);

  // At least `size` bytes; the memory of an earlier call is the same or gone. kInternal when there is none.
  Result<std::span<std::byte>> reserve(std::size_t size);
  std::size_t capacity() const { return capacity_; }

 private:
  Allocate allocate_;
  std::shared_ptr<void> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace hvd::fusion
