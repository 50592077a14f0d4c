#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

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

// From how many bytes of result on it passes the caches by: what is written then leaves them before it is read, and
// memory need not be read to be written. On Intel's processors; on AMD's it depended on the machine's state
// (docs/benchmarks.md, "Results that pass the caches by").
std::size_t least_streamed() {
#ifdef __x86_64__
  if (__builtin_cpu_is("intel") != 0) return std::size_t{48} << 20;
#endif
  return SIZE_MAX;
}

#ifdef __x86_64__
// Whole lines by stores that no cache keeps; other threads see them in order, as after any store.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) {
  auto* out = reinterpret_cast<__m128i*>(to);
  const auto* in = reinterpret_cast<const __m128i_u*>(from);
  for (std::size_t i = 0; i < lines * (kCacheLine / sizeof(__m128i)); ++i) {
    _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
  }
  _mm_sfence();
}
#endif

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

void copy_result(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t result_bytes) {
  static const std::size_t least = least_streamed();
#ifdef __x86_64__
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kCacheLine;
  if (result_bytes >= least && bytes >= head + kCacheLine) {
    const std::size_t middle = (bytes - head) / kCacheLine * kCacheLine;
    copy_bytes(to, from, head);
    stream_lines(to + head, from + head, middle / kCacheLine);
    to += head + middle;
    from += head + middle;
    bytes -= head + middle;
  }
#endif
  copy_bytes(to, from, bytes);
}

}  // namespace hvd::collectives::shm
