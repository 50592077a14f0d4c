#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "runtime/base/mutex.h"
#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {

// This rank's arena of a segment, in blocks: memory for tensors that the other ranks of the host read and write where
// they lie. A block holds the arena and the segment, so it may outlive the session; its pages go back to the system at
// its end. Thread-safe.
class ShmArena : public std::enable_shared_from_this<ShmArena> {
 public:
  static std::shared_ptr<ShmArena> make(std::shared_ptr<const ShmSegment> segment, int member);

  // Zeros, aligned to pages; null when there is no room.
  std::shared_ptr<void> take(std::size_t bytes);
  // Memory that no block has any more, of at least so many bytes: at most kKeptBytes together. The other ranks may read
  // it after this process has ended. Null when there is no room.
  std::span<std::byte> keep(std::size_t bytes);
  // For another keep(). Nobody reads it any more.
  void keep_again(std::span<std::byte> kept);
  static constexpr std::size_t kKeptBytes = std::size_t{48} << 20;

 private:
  ShmArena(std::shared_ptr<const ShmSegment> segment, int member);
  std::optional<std::size_t> cut(std::size_t size) HVD_REQUIRES(mutex_);
  void give_back(std::size_t begin, std::size_t bytes);

  const std::shared_ptr<const ShmSegment> segment_;
  const std::span<std::byte> memory_;
  Mutex mutex_;
  std::size_t kept_ HVD_GUARDED_BY(mutex_) = 0;
  std::multimap<std::size_t, std::byte*> kept_free_ HVD_GUARDED_BY(mutex_);  // by size
  std::map<std::size_t, std::size_t> free_ HVD_GUARDED_BY(mutex_);           // begin and size of what no block has
};

}  // namespace hvd::collectives
