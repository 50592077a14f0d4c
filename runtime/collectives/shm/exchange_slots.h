#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/collectives/shm/arena.h"
#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {

// Where the members of a process set meet to exchange tensors, without anybody else: a slot for each tensor, in the
// set's region of shared memory. A slot is used again and again; each use takes the elements of every member, and is
// complete when all have come. A member comes to a use after it has taken what it wanted of the one before. Whoever
// cannot go on
// **seals** the slot: then no use of this generation completes any more, and the one that is open must go another way
// on all members. So of a use that some have come to, all members conclude the same: it is complete, or the slot is
// sealed. A new generation, whose first member comes when all are through with the one before, begins anew. Orders:
// docs/design/shared-memory.md. Thread-safe, but for one use of a slot that a member comes to.
class ExchangeSlots {
 public:
  static constexpr std::size_t kBytes = 256;  // of a tensor that fits into its slot
  static constexpr std::uint32_t kGenerations = (1U << 16) - 1;

  struct Use {
    std::size_t slot = 0;
    std::uint32_t generation = 1;  // 1 .. kGenerations
    std::uint64_t number = 0;      // in the generation, from 1; 0: none yet
  };

  // The region is of no other set. `own`: this rank's place among the members. `arena`: this rank's, or null.
  ExchangeSlots(std::shared_ptr<const ShmSegment> segment, const ShmRegion& region, int members, int own,
                std::shared_ptr<ShmArena> arena = nullptr);

  int members() const { return members_; }
  int own() const { return own_; }
  // How many tensors can have one, the same on all members.
  std::size_t slots() const { return slots_; }

  enum class State : std::uint8_t { kOpen, kComplete, kSealed };
  // Leaves this member's elements there and comes to the use; at most kBytes. Then the state.
  State come(const Use& use, std::span<const std::byte> elements);
  // The same with elements that lie in memory of lend(), and stay there until this member comes to the next but one.
  State come_with_lent(const Use& use, std::span<const std::byte> elements);
  // Of a use that this member has come to.
  State look(const Use& use) const;
  // Also the state of that use then, not kOpen.
  State seal(const Use& use);
  // What a member has left. Requires: the use is complete, and this member has not come to the next.
  const std::byte* elements(const Use& use, int member) const;
  // The same of come_with_lent(); null when what it left is no place in shared memory.
  const std::byte* lent_elements(const Use& use, int member, std::size_t bytes) const;

  // Memory of this rank, of at least so many bytes, that the others can read for as long as anybody has mapped the
  // segment: whoever is slow may read what a process that has ended left. None: there is no more.
  std::span<std::byte> lend(std::size_t bytes);
  // Nobody reads it any more, so it may be lent again.
  void take_back(std::span<std::byte> lent);

  // Wakes the members that sleep here: something that they may wait for has changed. After a change of one's own.
  void ring_others();
  // Wakes this rank's threads.
  void ring_own();
  // Sleeps until rung or for `limit` at most, unless `is_over()`, which looks at slots. May return early; true: because
  // of a signal.
  template <typename IsOver>
  bool wait_for_bell(std::chrono::milliseconds limit, IsOver&& is_over) {
    const std::uint32_t rung = prepare_sleep();
    return !is_over() && sleep_until_rung(rung, limit);
  }

 private:
  struct Slot;
  struct Bell;
  Slot& at(std::size_t slot) const;
  State state(std::uint64_t word, const Use& use) const;
  std::byte* buffer(const Use& use, int member) const;
  Bell& bell(int member) const;
  std::uint32_t prepare_sleep();
  bool sleep_until_rung(std::uint32_t rung, std::chrono::milliseconds limit);

  const std::shared_ptr<const ShmSegment> segment_;  // keeps the region
  std::byte* const memory_;
  const int members_;
  const int own_;
  const std::size_t slots_;
  const std::shared_ptr<ShmArena> arena_;
};

}  // namespace hvd::collectives
