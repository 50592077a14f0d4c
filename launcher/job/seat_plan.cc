#include "launcher/job/seat_plan.h"

#include <string>

namespace hvd::launcher {

void CurrentSeats::set_current(rendezvous::Incarnation process) {
  const std::lock_guard lock(mutex_);
  Current& current = current_[process.slot];
  if (!current.removed_because.empty()) std::erase(removed_, process.slot);
  current = {.number = process.number, .removed_because = ""};
}

void CurrentSeats::remove(rendezvous::Incarnation process, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Current& current = current_[process.slot];
  if (current.number != process.number) return;
  if (current.removed_because.empty()) removed_.push_back(process.slot);
  current.removed_because = why;
}

Status CurrentSeats::check(rendezvous::Incarnation process) const {
  const auto [slot, number] = process;
  const std::lock_guard lock(mutex_);
  const auto found = current_.find(slot);
  if (found != current_.end() && found->second.number == number) {
    if (found->second.removed_because.empty()) return Status::ok();
    return Status::precondition("this process may not go on: " + found->second.removed_because);
  }
  const std::string has =
      found == current_.end() ? "no process" : "incarnation " + std::to_string(found->second.number);
  return Status::precondition("incarnation " + std::to_string(number) + " of slot " + std::to_string(slot) +
                              " may not join: the slot has " + has + " now");
}

Status CurrentSeats::check_all() const {
  const std::lock_guard lock(mutex_);
  if (removed_.empty()) return Status::ok();
  return Status::precondition(current_.at(removed_.front()).removed_because);
}

Status SeatPlan::admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers& environment) const {
  HVD_RETURN_IF_ERROR(table_.admit(seat, environment));
  return seats_->check(seat.process);
}

Result<rendezvous::Round> SeatPlan::decide(const rendezvous::Waiting& waiting) {
  HVD_RETURN_IF_ERROR(seats_->check_all());
  return table_.decide(waiting);
}

std::string SeatPlan::describe_missing(const rendezvous::Waiting& waiting, const std::set<int>& seen) const {
  return table_.describe_missing(waiting, seen);
}

}  // namespace hvd::launcher
