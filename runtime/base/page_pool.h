#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"

namespace hvd {

// Memory for large results. The system zeroes fresh pages at their first use, which costs as much as sending them; so
// what a result has given back is kept for a while and given out again. Thread-safe; shared by whoever takes memory and
// by all memory that was taken, which may outlive the session: see docs/design/output-memory.md.
// Invariants: idle blocks together have at most `Limits::idle_bytes`, there are at most kMostIdleBlocks, and none after
// close().
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  static constexpr std::size_t kAlignment = 64;
  // Smaller results come from malloc, which recycles them itself.
  static constexpr std::size_t kSmallestBlock = std::size_t{1} << 20;
  // From here on, blocks are made of huge pages, where the system allows them: one fault instead of 512. The last one
  // may be used in part, which would be too much of smaller blocks.
  static constexpr std::size_t kSmallestHugeBlock = std::size_t{16} << 20;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kMostIdleBlocks = 4096;  // for which there is room from the start
  static constexpr std::size_t kReleasedAtOnce = std::size_t{64} << 20;

  struct Limits {
    std::size_t idle_bytes = std::size_t{1} << 30;
    Millis idle_time{10000};
  };
  static std::shared_ptr<PagePool> make(Limits limits);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // At least `bytes` bytes, aligned, with anything in them; null when the system has none. Given back with the last
  // reference, by any thread, also in a forked child.
  std::shared_ptr<void> take(std::size_t bytes);
  // Gives the system what has been idle for Limits::idle_time, the longest idle first and not much more than
  // kReleasedAtOnce: that takes its time. True: there may be more.
  bool release_idle(TimePoint now);
  // Gives the system everything that is idle, and from now on at once what comes back.
  void close();
  std::size_t idle_bytes() const;

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    TimePoint idle_since{};
  };
  static void unmap(const Block& block);
  explicit PagePool(Limits limits);
  Block take_idle(std::size_t bytes) HVD_EXCLUDES(mutex_);
  void give_back(Block block) HVD_EXCLUDES(mutex_);
  // The caller gives it to the system without the lock: that takes a while. Requires: something is idle.
  Block take_oldest() HVD_REQUIRES(mutex_);
  // What has been idle since then or longer; false when nothing of it is left.
  bool release_oldest(TimePoint idle_since, std::size_t bytes) HVD_EXCLUDES(mutex_);
  void release_all() HVD_EXCLUDES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::vector<Block> idle_ HVD_GUARDED_BY(mutex_);  // the longest idle first
  std::size_t idle_bytes_ HVD_GUARDED_BY(mutex_) = 0;
  bool closed_ HVD_GUARDED_BY(mutex_) = false;
};

}  // namespace hvd
