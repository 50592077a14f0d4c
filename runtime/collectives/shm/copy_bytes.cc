#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives::shm {
namespace {

// The most bytes of one call of memcpy. From about 2 KiB on glibc copies by `rep movsb` where the processor calls that
// fast. On AMD's that takes several times as long as vector stores do when another core has had the memory that is
// written (docs/benchmarks.md, "Copies between cores").
std::size_t largest_copy() {
#ifdef __x86_64__
  if (__builtin_cpu_is("amd") != 0) return 2048;
#endif
  return SIZE_MAX;
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  static const std::size_t most = largest_copy();
  if (to == from) return;
  while (bytes > 0) {
    const std::size_t size = std::min(most, bytes);
    std::memcpy(to, from, size);
    to += size;
    from += size;
    bytes -= size;
  }
}

}  // namespace hvd::collectives::shm
