#include "runtime/collectives/shm/tensor_stream.h"

#include <cstdint>

namespace hvd::collectives::shm {

// By where they begin: each is held against the ends of all before it.
bool TensorStream::is_disjoint() const {
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    bool is_written;
  };
  std::vector<Range> ranges;
  visit({0, size_}, [&](const std::byte* input, std::byte* output, std::size_t, std::size_t bytes) {
    const auto add = [&](const std::byte* memory, bool is_written) {
      const auto begin = reinterpret_cast<std::uintptr_t>(memory);
      if (memory != nullptr) ranges.push_back({begin, begin + bytes, is_written});
    };
    add(output, true);
    if (input != output) add(input, false);
  });
  std::ranges::sort(ranges, {}, &Range::begin);
  std::uintptr_t end = 0;          // of all
  std::uintptr_t written_end = 0;  // of those that are written
  for (const Range& range : ranges) {
    if (range.begin < (range.is_written ? end : written_end)) return false;
    end = std::max(end, range.end);
    if (range.is_written) written_end = std::max(written_end, range.end);
  }
  return true;
}

}  // namespace hvd::collectives::shm
