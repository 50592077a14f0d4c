#include <cstring>
#include <new>

#include "runtime/collectives/memory.h"

namespace hvd::collectives {
namespace {

class HostMemory final : public Memory {
 public:
  void copy(void* dst, const void* src, std::size_t bytes) const override {
    if (dst != src && bytes > 0) std::memcpy(dst, src, bytes);
  }
  void scale_copy(DataType dtype, void* dst, const void* src, std::int64_t n, double factor) const override {
    if (n > 0) kernels::scale_copy(dtype, dst, src, n, factor);
  }
  void scale_result(DataType dtype, void* dst, const void* src, std::int64_t n,
                    const kernels::Scaling& scaling) const override {
    kernels::scale_result(dtype, dst, src, n, scaling);
  }
  void zero(void* dst, std::size_t bytes) const override {
    if (bytes > 0) std::memset(dst, 0, bytes);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    constexpr std::align_val_t kAlign{kAlignment};
    void* const memory = ::operator new(bytes, kAlign, std::nothrow);
    if (memory == nullptr) return nullptr;
    return {memory, [](void* p) { ::operator delete(p, kAlign); }};
  }
};

}  // namespace

const Memory& host_memory() {
  static const HostMemory memory;
  return memory;
}

}  // namespace hvd::collectives
