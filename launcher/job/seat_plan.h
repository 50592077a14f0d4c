#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/kv/plan.h"

namespace hvd::launcher {

// A static job's plan, with what only the launcher knows: which process each slot has now. One that was given up may
// not join even before its successor has. Made by Launch, shared with the rendezvous server; thread-safe.
class SeatPlan final : public rendezvous::Plan {
 public:
  explicit SeatPlan(std::vector<rendezvous::RankNumbers> slots) : table_(std::move(slots)) {}

  // The process is the slot's from now on. Of a slot for which this was never said, none may join.
  void set_current(rendezvous::Incarnation process);

  int max_slots() const override { return table_.max_slots(); }
  Status admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers& environment) const override;
  Result<rendezvous::Round> decide(const rendezvous::Waiting& waiting) override;
  std::string describe_missing(const rendezvous::Waiting& waiting, const std::set<int>& seen) const override;

 private:
  rendezvous::StaticPlan table_;
  mutable std::mutex mutex_;
  std::map<int, std::uint32_t> current_;  // the number of each slot's process
};

}  // namespace hvd::launcher
