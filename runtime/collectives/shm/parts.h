#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "horovod/types.h"
#include "runtime/collectives/memory.h"
#include "runtime/collectives/shm/segment.h"

// How calls are cut into what fits a slot. Pure; all in bytes.
namespace hvd::collectives::shm {

inline constexpr std::size_t kSlotBytes = ShmRegion::kSlotBytes;
// A reduction of several operands goes over the result again and again: in the first-level cache.
inline constexpr std::size_t kPieceBytes = 16384;

inline std::uint64_t pieces(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }

// Of `bytes`, what piece number `index` of `piece` bytes each has; nothing behind the end.
struct Part {
  std::size_t begin;
  std::size_t size;
};
inline Part part_of(std::size_t bytes, std::size_t piece, std::uint64_t index) {
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(index) * piece);
  return {begin, std::min(piece, bytes - begin)};
}

// The slice of a chunk that a member reduces: whole cache lines, so whole elements, but for the last.
inline Part slice_of(std::size_t bytes, int members, int member) {
  const std::size_t even = (bytes + static_cast<std::size_t>(members) - 1) / static_cast<std::size_t>(members);
  return part_of(bytes, (even + kCacheLine - 1) / kCacheLine * kCacheLine, static_cast<std::uint64_t>(member));
}

// Where a slot holds something for each member: so much for each, whole elements.
inline std::size_t share_of_slot(int members) {
  static_assert(kSlotBytes / ShmSegment::kMaxMembers >= kCacheLine);
  return kSlotBytes / static_cast<std::size_t>(members) / kCacheLine * kCacheLine;
}

// Where each member's part of one piece of memory begins and how long it is.
class Parts {
 public:
  Parts(const std::vector<std::int64_t>& counts, DataType dtype) {
    std::size_t begin = 0;
    for (const std::int64_t count : counts) {
      parts_.push_back({begin, bytes_of(dtype, count)});
      begin += parts_.back().size;
    }
    total_ = begin;
  }
  std::size_t total() const { return total_; }
  const Part& operator[](int member) const { return parts_[static_cast<std::size_t>(member)]; }
  // Of all members but one.
  std::size_t largest_but(int member) const {
    std::size_t most = 0;
    for (int i = 0; i < static_cast<int>(parts_.size()); ++i)
      most = i == member ? most : std::max(most, (*this)[i].size);
    return most;
  }

 private:
  std::vector<Part> parts_;
  std::size_t total_ = 0;
};

// Memory that other cores have read or written, or will; the ranges are the same, or don't overlap.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

// The same into memory of a result of `result_bytes` in all, which this call has not read: a large one passes the
// caches by where that is faster.
void copy_result(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t result_bytes);

}  // namespace hvd::collectives::shm
