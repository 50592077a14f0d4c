#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "horovod/types.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {

inline constexpr std::size_t kCacheLine = 64;  // bytes

inline std::size_t bytes_of(DataType dtype, std::int64_t count) {
  return static_cast<std::size_t>(count) * element_size(dtype);
}

// What a lane does to tensors besides running collectives on them, for one kind of memory: it packs inputs, unpacks and
// scales results, and allocates the memory between. A call has taken effect when it returns: the lane completes
// operations right after it unpacked them. Immutable and thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void copy(void* dst, const void* src, std::size_t bytes) const = 0;
  // dst[i] = src[i] * factor, with the rules of kernels::scale_copy. `dst` may be `src`, otherwise they don't overlap.
  virtual void scale_copy(DataType dtype, void* dst, const void* src, std::int64_t n, double factor) const = 0;
  // dst[i] = what `scaling` makes of the result src[i], as kernels::scale_result. `dst` may be `src`.
  virtual void scale_result(DataType dtype, void* dst, const void* src, std::int64_t n,
                            const kernels::Scaling& scaling) const = 0;
  virtual void zero(void* dst, std::size_t bytes) const = 0;
  // Aligned for every backend (kAlignment), with anything in it; null when there is none.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;

  static constexpr std::size_t kAlignment = 64;
};

// The memory of this process, worked on by the CPU's kernels on the calling thread.
const Memory& host_memory();

}  // namespace hvd::collectives
