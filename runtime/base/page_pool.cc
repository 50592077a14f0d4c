#include "runtime/base/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace hvd {

namespace {

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Sizes that blocks come in, so that results of nearly the same size share them: eight between a power of two and the
// next. What is rounded up is not touched and gets no pages.
std::size_t block_bytes(std::size_t bytes) {
  std::size_t unit = PagePool::kSmallestBlock;
  while (unit * 8 < bytes) unit *= 2;
  return round_up(bytes, unit);
}

// Whole huge pages have to begin at a multiple of their size: what is mapped too much goes back.
void* map(std::size_t bytes) {
  const std::size_t slack = bytes >= PagePool::kSmallestHugeBlock ? PagePool::kHugePage : 0;
  void* const mapped = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (slack == 0) return mapped;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t head =
      round_up(reinterpret_cast<std::uintptr_t>(begin), slack) - reinterpret_cast<std::uintptr_t>(begin);
  if (head != 0) ::munmap(begin, head);
  if (slack != head) ::munmap(begin + head + bytes, slack - head);
  (void)::madvise(begin + head, bytes, MADV_HUGEPAGE);  // where it is not allowed, ordinary pages do
  return begin + head;
}

}  // namespace

std::shared_ptr<PagePool> PagePool::make(Limits limits) { return std::shared_ptr<PagePool>(new PagePool(limits)); }

void PagePool::unmap(const Block& block) { ::munmap(block.memory, block.bytes); }

PagePool::PagePool(Limits limits) : limits_(limits) { idle_.reserve(kMostIdleBlocks); }

PagePool::~PagePool() { close(); }

std::shared_ptr<void> PagePool::take(std::size_t bytes) {
  if (bytes < kSmallestBlock) {
    void* const memory = std::aligned_alloc(kAlignment, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
    return memory == nullptr ? nullptr : std::shared_ptr<void>(memory, &std::free);
  }
  Block block = take_idle(block_bytes(bytes));
  if (block.memory == nullptr) block = {map(block_bytes(bytes)), block_bytes(bytes)};
  if (block.memory == nullptr) {
    release_all();
    block.memory = map(block.bytes);
  }
  if (block.memory == nullptr) return nullptr;
  return {block.memory, [pool = shared_from_this(), block](void*) { pool->give_back(block); }};
}

PagePool::Block PagePool::take_idle(std::size_t bytes) {
  const MutexLock lock(mutex_);
  // The one that came back last is the likeliest to be in a cache.
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [bytes](const Block& b) { return b.bytes == bytes; });
  if (found == idle_.rend()) return {};
  const Block block = *found;
  idle_.erase(std::next(found).base());
  idle_bytes_ -= block.bytes;
  return block;
}

void PagePool::give_back(Block block) {
  // Never waits: in a forked child the lock may be held by a thread that does not exist there. Allocates nothing, so
  // that it cannot throw: it runs where results are destroyed.
  if (block.bytes > limits_.idle_bytes || !mutex_.try_lock()) return unmap(block);
  while (!closed_ && (idle_bytes_ + block.bytes > limits_.idle_bytes || idle_.size() == kMostIdleBlocks)) {
    const Block oldest = take_oldest();
    mutex_.unlock();
    unmap(oldest);
    if (!mutex_.try_lock()) return unmap(block);
  }
  const bool kept = !closed_;
  if (kept) {
    block.idle_since = SteadyClock::now();
    idle_.push_back(block);  // there is room, see the constructor
    idle_bytes_ += block.bytes;
  }
  mutex_.unlock();
  if (!kept) unmap(block);
}

PagePool::Block PagePool::take_oldest() {
  const Block block = idle_.front();
  idle_.erase(idle_.begin());
  idle_bytes_ -= block.bytes;
  return block;
}

bool PagePool::release_oldest(TimePoint idle_since, std::size_t bytes) {
  for (std::size_t released = 0; released < bytes;) {
    Block block;
    {
      const MutexLock lock(mutex_);
      if (idle_.empty() || idle_.front().idle_since > idle_since) return false;
      block = take_oldest();
    }
    unmap(block);
    released += block.bytes;
  }
  return true;
}

bool PagePool::release_idle(TimePoint now) { return release_oldest(now - limits_.idle_time, kReleasedAtOnce); }

void PagePool::release_all() { release_oldest(TimePoint::max(), std::numeric_limits<std::size_t>::max()); }

void PagePool::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  release_all();
}

std::size_t PagePool::idle_bytes() const {
  const MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace hvd
