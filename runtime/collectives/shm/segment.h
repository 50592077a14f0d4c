#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  std::atomic<std::uint64_t> announced;          // the last round in which its slot says where its tensors lie
  std::atomic<std::uint64_t> named;              // the same, of tensors in its own process
  std::atomic<std::uint32_t> has_left;           // 1: a call of it failed, and its tensors are its caller's again
  alignas(128) std::atomic<std::uint32_t> bell;  // counts: a futex word
  std::atomic<std::uint32_t> is_asleep;
  std::atomic<std::uint64_t> awaited;  // what it sleeps for, packed by Rounds
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// What one process set has of a segment: a line for each member, kSlots pieces of memory for each, and memory for
// ExchangeSlots.
struct ShmRegion {
  static constexpr std::size_t kSlots = 3;
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
  static constexpr std::size_t kExchangeBytes = std::size_t{8} << 20;

  ShmLine* lines = nullptr;
  std::byte* memory = nullptr;
  std::byte* exchange = nullptr;

  std::byte* slot(int member, std::uint64_t round) const {
    return memory + (static_cast<std::size_t>(member) * kSlots + round % kSlots) * kSlotBytes;
  }
};

// Memory that the ranks of one host have mapped: a page for the hand-over, a region for each of the first process sets
// that an epoch has, and an arena for each rank, whose tensors the others reach. It has no name and no file; its size
// is sealed; nothing of it takes memory before it is touched. Gone with its last mapping, so also when every process
// was killed. A forked child does not have it. Immutable; what is in the memory is Rounds', ShmArena's and the
// hand-over's business.
class ShmSegment {
 public:
  // Sets are told apart by their context id, which is never used again in an epoch.
  static constexpr std::uint64_t kRegions = 64;
  static constexpr int kMaxMembers = 1024;
  static constexpr std::size_t kNonceSize = 32;
  // The kernel's: 4 KiB, or up to 64 KiB on other machines than x86.
  static std::size_t page();
  // Rounded up to whole pages.
  static std::size_t pages(std::size_t bytes) { return (bytes + page() - 1) / page() * page(); }
  using Nonce = std::array<std::uint8_t, kNonceSize>;

  // For so many ranks, 2 <= members <= kMaxMembers, with so many bytes of arena for each, rounded down to whole pages.
  // The descriptor is for handing it over.
  static Result<std::pair<std::shared_ptr<ShmSegment>, Fd>> create(int members, std::size_t arena_bytes = 0);
  // What arenas may have: they together what the machine has. None where the user bounds addresses (ulimit -v).
  static std::size_t usual_arena_bytes(int members);
  // One that another process has created for as many; its size says how large the arenas are.
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

  // Requires: 0 <= member < members.
  std::span<std::byte> arena(int member) const;
  // Where in the arenas these bytes lie, the same number in every process that has mapped them; nothing if elsewhere.
  std::optional<std::uint64_t> offset_of(const void* memory, std::size_t bytes) const;
  // These bytes in this process; null when they are not all inside the arenas.
  std::byte* at(std::uint64_t offset, std::size_t bytes) const;
  // Whether this is the process that has mapped it, not a forked child.
  bool is_here() const;

 private:
  ShmSegment(std::byte* memory, int members, std::size_t arena_bytes)
      : memory_(memory), members_(members), arena_bytes_(arena_bytes), owner_(::getpid()) {}
  std::byte* arenas() const;
  std::size_t bytes_of_arenas() const { return arena_bytes_ * static_cast<std::size_t>(members_); }

  std::byte* const memory_;
  const int members_;
  const std::size_t arena_bytes_;  // of each member
  const pid_t owner_;
};

}  // namespace hvd::collectives
