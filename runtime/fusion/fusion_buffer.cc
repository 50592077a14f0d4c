#include "runtime/fusion/fusion_buffer.h"

#include <string>
#include <utility>

namespace hvd::fusion {

FusionBuffer::FusionBuffer(Allocate allocate) : allocate_(std::move(allocate)) {}

Result<std::span<std::byte>> FusionBuffer::reserve(std::size_t size) {
  if (size > capacity_) {
    memory_.reset();  // first, so that the peak is one buffer and not two
    capacity_ = 0;
    memory_ = allocate_(size);
    if (memory_ == nullptr) {
      return Status::internal("no memory for a fusion buffer of " + std::to_string(size) + " bytes");
    }
    capacity_ = size;
  }
  return std::span<std::byte>(static_cast<std::byte*>(memory_.get()), size);
}

}  // namespace hvd::fusion
