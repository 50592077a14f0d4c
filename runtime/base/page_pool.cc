#include "runtime/base/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

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
  const std::size_t head = round_up(reinterpret_cast<std::uintptr_t>(begin), slack) - reinterpret_cast<std::uintptr_t>(begin);
  if (head != 0) ::munmap(begin, head);
  if (slack != head) ::munmap(begin + head + bytes, slack - head);
  (void)::madvise(begin + head, bytes, MADV_HUGEPAGE);  // where it is not allowed, ordinary pages do
  return begin + head;
}

}  // namespace

std::shared_ptr<PagePool> PagePool::make(Limits limits) { return std::shared_ptr<PagePool>(new PagePool(limits)); }

void PagePool::unmap(const Block& block) { ::munmap(block.memory, block.bytes); }

void PagePool::unmap(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) unmap(block);
}

PagePool::~PagePool() { close(); }

std::shared_ptr<void> PagePool::take(std::size_t bytes) {
  if (bytes < kSmallestBlock) {
    void* const memory = std::aligned_alloc(kAlignment, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
    return memory == nullptr ? nullptr : std::shared_ptr<void>(memory, &std::free);
  }
  Block block = take_idle(block_bytes(bytes));
  if (block.memory == nullptr) block = {map(block_bytes(bytes)), block_bytes(bytes)};
  if (block.memory == nullptr) {
    release_idle(TimePoint::max());
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
  std::vector<Block> surplus;
  // Never waits: in a forked child the lock may be held by a thread that does not exist there.
  if (block.bytes > limits_.idle_bytes || !mutex_.try_lock()) return unmap(block);
  if (closed_) {
    surplus.push_back(block);
  } else {
    std::size_t count = 0;
    for (std::size_t bytes = idle_bytes_ + block.bytes; bytes > limits_.idle_bytes; ++count) bytes -= idle_[count].bytes;
    surplus = take_oldest(count);
    block.idle_since = SteadyClock::now();
    idle_.push_back(block);
    idle_bytes_ += block.bytes;
  }
  mutex_.unlock();
  unmap(surplus);
}

std::vector<PagePool::Block> PagePool::take_oldest(std::size_t count) {
  const auto end = idle_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Block> taken(idle_.begin(), end);
  idle_.erase(idle_.begin(), end);
  for (const Block& block : taken) idle_bytes_ -= block.bytes;
  return taken;
}

void PagePool::release_idle(TimePoint now) {
  std::vector<Block> old;
  {
    const MutexLock lock(mutex_);
    const auto is_old = [&](const Block& b) { return now - b.idle_since >= limits_.idle_time; };
    old = take_oldest(static_cast<std::size_t>(std::find_if_not(idle_.begin(), idle_.end(), is_old) - idle_.begin()));
  }
  unmap(old);
}

void PagePool::close() {
  std::vector<Block> all;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    all = take_oldest(idle_.size());
  }
  unmap(all);
}

std::size_t PagePool::idle_bytes() const {
  const MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace hvd
