#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/kv/plan.h"

namespace hvd::launcher {

// Which process each slot has now: one that was given up may not join even before its successor has. Made by Launch,
// shared with the plan, which the rendezvous server asks on its thread; thread-safe.
class CurrentSeats {
 public:
  // The process is the slot's from now on. Of a slot for which this was never said, none may join.
  void set_current(rendezvous::Incarnation process);
  // The slot's process may not join any more; `why`, which is not empty, is what it gets.
  void remove(rendezvous::Incarnation process, const std::string& why);
  Status check(rendezvous::Incarnation process) const;
  // An error when the process of some slot may not join any more: why the one that was removed first may not. Asked for
  // each that joins: it costs the same however many slots there are.
  Status check_all() const;

 private:
  struct Current {
    std::uint32_t number = 0;
    std::string removed_because;  // "": it is not removed
  };
  mutable std::mutex mutex_;
  std::map<int, Current> current_;
  std::vector<int> removed_;  // slots whose process is, in the order in which that happened
};

// A static job's plan, with what only the launcher knows: which process each slot has, and that a round for which one
// is missing that has ended will never be complete. Shared with the rendezvous server; thread-safe.
class SeatPlan final : public rendezvous::Plan {
 public:
  SeatPlan(std::vector<rendezvous::RankNumbers> slots, std::shared_ptr<const CurrentSeats> seats)
      : table_(std::move(slots)), seats_(std::move(seats)) {}

  int max_slots() const override { return table_.max_slots(); }
  Status admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers& environment) const override;
  Result<rendezvous::Round> decide(const rendezvous::Waiting& waiting) override;
  std::string describe_missing(const rendezvous::Waiting& waiting, const std::set<int>& seen) const override;

 private:
  rendezvous::StaticPlan table_;
  const std::shared_ptr<const CurrentSeats> seats_;
};

}  // namespace hvd::launcher
