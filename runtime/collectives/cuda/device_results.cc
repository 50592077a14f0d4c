// Memory of results. To allocate a piece and to give it back costs the driver a few hundred microseconds, and it waits
// then for all that runs on the GPU. So pieces are put aside: when one of them goes back to the driver, which waits,
// all others that were put aside before can be used again.
#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/collectives/cuda/device.h"

namespace hvd::collectives::cuda {

namespace {

constexpr std::size_t kLeast = 512;
constexpr std::size_t kLargest = std::size_t{16} << 20;  // that is put aside
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMost = 64;

}  // namespace

Result<std::shared_ptr<void>> Device::allocate_result(std::size_t bytes) {
  if (bytes > kLargest) return allocate(bytes);
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeast));
  auto memory = take_result_memory(size);
  if (!memory.is_ok()) {
    free_results();
    memory = take_result_memory(size);
  }
  HVD_RETURN_IF_ERROR(memory.status());
  return std::shared_ptr<void>(reinterpret_cast<void*>(memory.value()),
                               [self = shared_from_this(), size](void* p) { self->keep_result({p, size}); });
}

Result<std::uint64_t> Device::take_result_memory(std::size_t bytes) {
  {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(idle_results_, bytes, &OldResult::bytes);
    if (found != idle_results_.end()) {
      const auto memory = address_of(found->memory);
      idle_results_.erase(found);
      return memory;
    }
  }
  const Scope scope(*this);
  std::uint64_t memory = 0;
  HVD_RETURN_IF_ERROR(driver_->check(driver_->calls().allocate(&memory, bytes), of_bytes("cuMemAlloc", bytes)));
  return memory;
}

// What is idle by the next time that the GPU is waited for is not needed any more.
void Device::keep_result(OldResult result) {
  std::vector<OldResult> old;
  std::vector<OldResult> unused;
  {
    const MutexLock lock(mutex_);
    old_results_.push_back(result);
    old_bytes_ += result.bytes;
    if (old_results_.size() < kMost && old_bytes_ < kMostBytes) return;
    old = std::exchange(old_results_, {});
    old_bytes_ = 0;
    unused = std::exchange(idle_results_, {});
  }
  const OldResult last = old.back();
  old.pop_back();
  if (free({last.memory, false})) {
    const MutexLock lock(mutex_);
    idle_results_.insert(idle_results_.end(), old.begin(), old.end());
  } else {
    unused.insert(unused.end(), old.begin(), old.end());
  }
  for (const OldResult& one : unused) free({one.memory, false});
}

void Device::free_results() {
  std::vector<OldResult> all;
  {
    const MutexLock lock(mutex_);
    all = std::exchange(old_results_, {});
    old_bytes_ = 0;
    all.insert(all.end(), idle_results_.begin(), idle_results_.end());
    idle_results_.clear();
  }
  for (const OldResult& one : all) free({one.memory, false});
}

}  // namespace hvd::collectives::cuda
