#include "launcher/job/seat_plan.h"

#include <string>

namespace hvd::launcher {

void SeatPlan::set_current(rendezvous::Incarnation process) {
  const std::lock_guard lock(mutex_);
  current_[process.slot] = process.number;
}

Status SeatPlan::admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers& environment) const {
  HVD_RETURN_IF_ERROR(table_.admit(seat, environment));
  const auto [slot, number] = seat.process;
  const std::lock_guard lock(mutex_);
  const auto found = current_.find(slot);
  if (found != current_.end() && found->second == number) return Status::ok();
  const std::string has = found == current_.end() ? "no process" : "incarnation " + std::to_string(found->second);
  return Status::precondition("incarnation " + std::to_string(number) + " of slot " + std::to_string(slot) +
                              " may not join: the slot has " + has + " now");
}

Result<rendezvous::Round> SeatPlan::decide(const rendezvous::Waiting& waiting) { return table_.decide(waiting); }

std::string SeatPlan::describe_missing(const rendezvous::Waiting& waiting, const std::set<int>& seen) const {
  return table_.describe_missing(waiting, seen);
}

}  // namespace hvd::launcher
