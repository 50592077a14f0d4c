#include "runtime/fusion/fusion_buffer.h"

#include <new>
#include <string>

namespace hvd::fusion {

void FusionBuffer::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t{kAlignment});
}

Result<std::span<std::byte>> FusionBuffer::reserve(std::size_t size) {
  if (size > capacity_) {
    memory_.reset();  // first, so that the peak is one buffer and not two
    capacity_ = 0;
    void* memory = ::operator new(size, std::align_val_t{kAlignment}, std::nothrow);
    if (memory == nullptr) {
      return Status::internal("no memory for a fusion buffer of " + std::to_string(size) + " bytes");
    }
    memory_.reset(static_cast<std::byte*>(memory));
    capacity_ = size;
  }
  return std::span<std::byte>(memory_.get(), size);
}

}  // namespace hvd::fusion
