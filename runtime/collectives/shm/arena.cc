#include "runtime/collectives/shm/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

namespace hvd::collectives {

std::shared_ptr<ShmArena> ShmArena::make(std::shared_ptr<const ShmSegment> segment, int member) {
  return std::shared_ptr<ShmArena>(new ShmArena(std::move(segment), member));
}

ShmArena::ShmArena(std::shared_ptr<const ShmSegment> segment, int member)
    : segment_(std::move(segment)), memory_(segment_->arena(member)), free_{{0, memory_.size()}} {}

// Where so many bytes of free memory were, whole pages.
std::optional<std::size_t> ShmArena::cut(std::size_t size) {
  const auto found = std::ranges::find_if(free_, [size](const auto& range) { return range.second >= size; });
  if (found == free_.end()) return std::nullopt;
  const auto [begin, bytes] = *found;
  free_.erase(found);
  if (bytes > size) free_.emplace(begin + size, bytes - size);
  return begin;
}

std::shared_ptr<void> ShmArena::take(std::size_t bytes) {
  if (bytes > memory_.size()) return nullptr;
  const std::size_t size = std::max<std::size_t>(ShmSegment::pages(bytes), ShmSegment::page());
  std::optional<std::size_t> begin;
  {
    const MutexLock lock(mutex_);
    begin = cut(size);
  }
  if (!begin) return nullptr;
  return {memory_.data() + *begin,
          [arena = shared_from_this(), at = *begin, size](void*) { arena->give_back(at, size); }};
}

// Sizes are few, so that what is free again fits what is asked for: four between two powers of two.
std::span<std::byte> ShmArena::keep(std::size_t bytes) {
  if (bytes > kKeptBytes) return {};
  const std::size_t step = std::max(std::bit_floor(bytes) / 4, ShmSegment::page());
  const std::size_t size = (bytes + step - 1) / step * step;
  const MutexLock lock(mutex_);
  if (const auto found = kept_free_.find(size); found != kept_free_.end()) {
    std::byte* const memory = found->second;
    kept_free_.erase(found);
    return {memory, size};
  }
  if (size > memory_.size() || size > kKeptBytes - kept_) return {};
  const std::optional<std::size_t> begin = cut(size);
  if (!begin) return {};
  kept_ += size;
  return memory_.subspan(*begin, size);
}

void ShmArena::keep_again(std::span<std::byte> kept) {
  const MutexLock lock(mutex_);
  kept_free_.emplace(kept.size(), kept.data());
}

// A forked child does not have the memory, and perhaps a lock that another thread of its parent held.
void ShmArena::give_back(std::size_t begin, std::size_t bytes) {
  if (!segment_->is_here()) return;
  std::byte* const memory = memory_.data() + begin;
  if (::madvise(memory, bytes, MADV_REMOVE) != 0) std::memset(memory, 0, bytes);  // take() promises zeros
  const MutexLock lock(mutex_);
  auto range = free_.emplace(begin, bytes).first;
  const auto after = std::next(range);
  if (after != free_.end() && range->first + range->second == after->first) {
    range->second += after->second;
    free_.erase(after);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != range->first) return;
  before->second += range->second;
  free_.erase(range);
}

}  // namespace hvd::collectives
