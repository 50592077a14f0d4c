#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::collectives {

// What the ranks of a host say to each other in shared memory, one line for each member of a set; zeros to begin with.
// A member writes its own marks and sleeps on its own bell; others ring it. Orders: docs/design/shared-memory.md.
struct ShmLine {
  static constexpr std::size_t kMarks = 3;
  alignas(128) std::array<std::atomic<std::uint64_t>, kMarks> marks;  // the last round it has done that in
  alignas(128) std::atomic<std::uint32_t> bell;                       // counts: a futex word
  std::atomic<std::uint32_t> is_asleep;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// What one process set has of a segment: a line for each member, and kSlots pieces of memory for each.
struct ShmRegion {
  static constexpr std::size_t kSlots = 3;
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 10;

  ShmLine* lines = nullptr;
  std::byte* memory = nullptr;

  std::byte* slot(int member, std::uint64_t round) const {
    return memory + (static_cast<std::size_t>(member) * kSlots + round % kSlots) * kSlotBytes;
  }
};

// Memory that the ranks of one host have mapped: a page for the hand-over, and a region for each of the first process
// sets that an epoch has. It has no name and no file; its size is sealed; nothing of it takes memory before it is
// touched. Gone with its last mapping, so also when every process was killed. A forked child does not have it.
// Immutable; what is in the memory is Rounds' and the hand-over's business.
class ShmSegment {
 public:
  // Sets are told apart by their context id, which is never used again in an epoch.
  static constexpr std::uint64_t kRegions = 64;
  static constexpr int kMaxMembers = 1024;
  static constexpr std::size_t kNonceSize = 32;
  using Nonce = std::array<std::uint8_t, kNonceSize>;

  // For so many ranks; 2 <= members <= kMaxMembers. The descriptor is for handing it over.
  static Result<std::pair<std::shared_ptr<ShmSegment>, Fd>> create(int members);
  // One that another process has created for as many.
  static Result<std::shared_ptr<ShmSegment>> map(const Fd& fd, int members);
  // Whether this system gives such memory at all.
  static Status probe();
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // Requires: index < kRegions.
  ShmRegion region(std::uint64_t index) const;
  // Where a member puts what proves that it has mapped this memory and not other memory; -1 is the creator's.
  std::span<std::uint8_t, kNonceSize> proof(int member) const;

 private:
  ShmSegment(std::byte* memory, int members) : memory_(memory), members_(members) {}

  std::byte* const memory_;
  const int members_;
};

}  // namespace hvd::collectives
