#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/shm/segment.h"

namespace hvd::collectives {

// The members of a process set, meeting in its region of shared memory. Their calls are the same in the same order, and
// each is cut into rounds, so all members count the same rounds. In a round a member may put something into its slot,
// and it marks how far it is; others wait for the mark. A slot is used again kSlots rounds later, when all members are
// done with the round. Waits poll for a moment, yield, then sleep; they end by the mark or by abort().
//
// Owned by a backend. Used by the lane's thread; abort() and progress() come from any thread.
class Rounds {
 public:
  // The places of marks in a line. A member sets them in this order, not necessarily all of them but the last.
  enum Mark : std::uint8_t {
    kStaged = 0,   // its slot holds what others read
    kReduced = 1,  // its slice of the slot holds the result
    kDone = 2,     // it has read all it wanted, and has written all
  };

  // Where tensors lie that a member has announced.
  enum Where : std::uint8_t { kInSegment, kInProcess };

  // `ranks`: the global ranks of the members, who are numbered by their places there. The region is of no other set.
  Rounds(std::shared_ptr<const ShmSegment> segment, ShmRegion region, std::vector<int> ranks, int own);

  int size() const { return static_cast<int>(ranks_.size()); }
  int own() const { return own_; }
  const ShmSegment& segment() const { return *segment_; }
  int rank_of(int member) const { return ranks_[static_cast<std::size_t>(member)]; }

  // Begins the next round, when its slots are free. Its number is for the calls below.
  Result<std::uint64_t> begin();
  std::byte* slot(int member, std::uint64_t round) const { return region_.slot(member, round); }
  // Publishes what this member wrote before.
  void mark(Mark mark, std::uint64_t round);
  // Says with the next mark that this member's slot holds where its tensors lie, instead of what is in them.
  void announce(Where where, std::uint64_t round) { place(where, own_).store(round, std::memory_order_relaxed); }
  // How many members did so. Requires: their marks of the round were waited for.
  int announcements(Where where, std::uint64_t round) const;
  // What the member wrote before its mark can be read then.
  Status wait(Mark mark, int member, std::uint64_t round);
  Status wait_for_all(Mark mark, std::uint64_t round);
  // The same for a mark after which members no longer touch each other's tensors. Does not end well where a member has
  // left before: what was read of its tensors then may be anything.
  Status wait_for_all_here(Mark mark, std::uint64_t round);
  // To be called before the caller of a call that failed has its tensors back.
  void leave();
  bool has_left(int member) const { return line(member).has_left.load(std::memory_order_seq_cst) != 0; }
  // Ends with the reason for which the member has left. Requires: it has.
  Status wait_for_abort(int member) { return wait_until(kDone, member, kNever); }

  // All waits, now and later, fail with the first reason.
  void abort(const Status& why);
  Status failure() const;
  PeerProgress progress() const;

 private:
  static constexpr int kAll = -1;
  static constexpr std::uint64_t kNever = (std::uint64_t{1} << 50) - 1;  // no such round comes

  // What a member sleeps for, in one word of its line.
  struct Awaited {
    Mark mark;
    int member;  // or kAll
    std::uint64_t round;

    std::uint64_t pack() const;
    static Awaited unpack(std::uint64_t word);
  };

  // `waiter`, whose own mark does not count, waits for no more.
  bool is_there(const Awaited& awaited, int waiter) const;
  Status wait_until(Mark mark, int member, std::uint64_t round);
  void sleep_until_rung(const Awaited& awaited, const std::function<bool()>& is_over);
  ShmLine& line(int member) const { return region_.lines[member]; }
  std::atomic<std::uint64_t>& place(Where where, int member) const {
    return where == kInSegment ? line(member).announced : line(member).named;
  }

  const std::shared_ptr<const ShmSegment> segment_;  // keeps the region
  const ShmRegion region_;
  const std::vector<int> ranks_;
  const int own_;
  std::uint64_t round_ = 0;  // lane's thread

  std::atomic<std::uint64_t> awaited_{0};  // what the lane's thread waits for, packed, for progress(); 0: nothing

  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  Status failure_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::collectives
