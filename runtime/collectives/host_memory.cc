#include <cstring>
#include <new>

#include "runtime/collectives/backend.h"
#include "runtime/collectives/kernels/adasum.h"

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

std::string HostBackend::why_not_in_host_memory(const CallTraits& call) {
  if (call.memory != MemoryKind::kHost) return "it reaches host memory only";
  if (call.op == OpType::kJoin) return "it has no " + std::string(op_type_name(call.op));
  return why_no_reduction(call);
}

std::string HostBackend::why_no_reduction(const CallTraits& call) {
  const std::string tensors = std::string(data_type_name(call.dtype)) + " tensors";
  if (call.op == OpType::kAdasum) {
    return kernels::can_adasum(call.dtype) ? "" : tensors + " have no Adasum; floating point is needed";
  }
  if (!is_reduction(call.op) || kernels::can_reduce(call.dtype, call.reduce_op)) return "";
  return tensors + " have no reduction " + std::string(reduce_op_name(call.reduce_op));
}

Status HostBackend::check(const CollectiveCall& call, std::uint64_t bytes) const {
  const std::string reason = why_not({call.op, call.dtype, call.reduce_op, call.memory, bytes});
  if (reason.empty()) return Status::ok();
  return Status::invalid_argument(std::string(name()) + " does not take this call: " + reason);
}

}  // namespace hvd::collectives
