#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace hvd::fusion {

// Memory into which the tensors of a batch are copied. Owned by one lane and confined to its thread. Allocated when
// first needed, grown when a batch needs more, kept until the lane ends. Contents do not survive growing.
class FusionBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  // At least `size` bytes, aligned; the memory of an earlier call is the same or gone. kInternal when there is no
  // memory.
  Result<std::span<std::byte>> reserve(std::size_t size);
  std::size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace hvd::fusion
