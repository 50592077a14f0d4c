#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {

// Where the members of a process set meet to exchange small tensors, without anybody else: a slot for each tensor, in
// the set's region of shared memory. A slot is used again and again; each use takes the elements of every member, and
// is complete when all have come. A member comes to a use after it has taken what it wanted of the one before. Whoever
// cannot go on **seals** the slot: then no use completes any more, and the one that is open must go another way on all
// members. So of a use that some have come to, all members conclude the same: it is complete, or the slot is sealed.
// Orders: docs/design/shared-memory.md. Thread-safe, but for one use of a slot that a member comes to.
class ExchangeSlots {
 public:
  static constexpr std::size_t kBytes = 256;  // of a tensor

  // The region is of no other set. `own`: this rank's place among the members.
  ExchangeSlots(std::shared_ptr<const ShmSegment> segment, const ShmRegion& region, int members, int own);

  int members() const { return members_; }
  // How many tensors can have one, the same on all members.
  std::size_t slots() const { return slots_; }

  enum class State : std::uint8_t { kOpen, kComplete, kSealed };
  // Leaves this member's elements there and comes to the use, the first of which is 1; at most kBytes. Then the state.
  State come(std::size_t slot, std::uint64_t use, std::span<const std::byte> elements);
  // Of a use that this member has come to.
  State look(std::size_t slot, std::uint64_t use) const;
  // Also the state of that use then, not kOpen.
  State seal(std::size_t slot, std::uint64_t use);
  // What a member has left. Requires: the use is complete, and this member has not come to the next.
  const std::byte* elements(std::size_t slot, std::uint64_t use, int member) const;

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
  State state(std::uint64_t word, std::uint64_t use) const;
  std::byte* buffer(std::size_t slot, std::uint64_t use, int member) const;
  Bell& bell(int member) const;
  std::uint32_t prepare_sleep();
  bool sleep_until_rung(std::uint32_t rung, std::chrono::milliseconds limit);

  const std::shared_ptr<const ShmSegment> segment_;  // keeps the region
  std::byte* const memory_;
  const int members_;
  const int own_;
  const std::size_t slots_;
};

}  // namespace hvd::collectives
