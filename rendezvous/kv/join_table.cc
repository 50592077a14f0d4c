#include "rendezvous/kv/join_table.h"

#include <algorithm>
#include <utility>

namespace hvd::rendezvous {
namespace {

std::string process_in(const Seat& seat) {
  return "incarnation " + std::to_string(seat.process.number) + " of slot " + std::to_string(seat.process.slot);
}

// The error for the process that had the seat before.
Status replaced_error(const JoinBody& before, const JoinBody& now) {
  if (before.nonce == now.nonce) return Status::aborted("the same client joined again on another connection");
  if (before.seat.process.number == now.seat.process.number) {
    return Status::precondition("another process joined in slot " + std::to_string(now.seat.process.slot) +
                                " and took this one's place");
  }
  return Status::precondition(process_in(now.seat) + " has joined in the place of this process, " +
                              process_in(before.seat));
}

}  // namespace

JoinOutcome JoinTable::join(JoinBody request, MemberId member) {
  HVD_CHECK(!slots_.contains(member), "a member waits in one seat at a time");
  JoinOutcome outcome;
  if (Status bad = check(request); !bad.is_ok()) {
    outcome.refused.emplace_back(member, std::move(bad));
    return outcome;
  }
  const int slot = request.seat.process.slot;
  newest_[slot] = request.seat.process.number;
  if (const auto joined = current_.find(slot); joined != current_.end()) {
    outcome.left = joined->second.numbers.rank;
    // The answer to this join was lost with the client's connection: it is the same join and gets the same answer.
    if (joined->second.nonce == request.nonce) {
      outcome.left.reset();
      outcome.epoch = epoch_;
      outcome.joined.emplace_back(member, joined->second.numbers);
      return outcome;
    }
  }
  take_seat(std::move(request), member, outcome);
  decide(outcome);
  return outcome;
}

JoinOutcome JoinTable::reconsider() {
  JoinOutcome outcome;
  for (const auto& [slot, request] : Waiting(waiting_)) {
    if (Status bad = plan_->admit(request.seat, request.environment); !bad.is_ok()) {
      outcome.refused.emplace_back(members_.at(slot), std::move(bad));
      give_up_seat(slot);
    }
  }
  decide(outcome);
  return outcome;
}

Status JoinTable::check(const JoinBody& request) const {
  HVD_RETURN_IF_ERROR(plan_->admit(request.seat, request.environment));
  const auto newest = newest_.find(request.seat.process.slot);
  if (newest != newest_.end() && request.seat.process.number < newest->second) {
    return Status::precondition(process_in(request.seat) + " comes too late: incarnation " +
                                std::to_string(newest->second) + " has its place");
  }
  if (request.row.size() > limits_.row_bytes) {
    return Status::invalid_argument("the row of slot " + std::to_string(request.seat.process.slot) + " has " +
                                    std::to_string(request.row.size()) + " bytes; at most " +
                                    std::to_string(limits_.row_bytes) + " are allowed");
  }
  if (request.row.size() > limits_.total_row_bytes - row_bytes_) {
    return Status::precondition("the row of slot " + std::to_string(request.seat.process.slot) +
                                " does not fit: waiting rows have " + std::to_string(row_bytes_) + " of at most " +
                                std::to_string(limits_.total_row_bytes) + " bytes");
  }
  return Status::ok();
}

void JoinTable::take_seat(JoinBody request, MemberId member, JoinOutcome& outcome) {
  const int slot = request.seat.process.slot;
  if (const auto before = waiting_.find(slot); before != waiting_.end()) {
    outcome.refused.emplace_back(members_.at(slot), replaced_error(before->second, request));
    give_up_seat(slot);
  }
  row_bytes_ += request.row.size();
  slots_.emplace(member, slot);
  members_.emplace(slot, member);
  seen_.insert(slot);
  returning_.erase(slot);
  waiting_.emplace(slot, std::move(request));
}

void JoinTable::decide(JoinOutcome& outcome) {
  const Result<Round> round = plan_->decide(waiting_);
  if (round.is_ok()) {
    if (!round.value().empty()) begin_epoch(round.value(), outcome);
    return;
  }
  while (!waiting_.empty()) {
    const int slot = waiting_.begin()->first;
    outcome.refused.emplace_back(members_.at(slot), round.status());
    give_up_seat(slot);
  }
}

void JoinTable::begin_epoch(const Round& round, JoinOutcome& outcome) {
  outcome.retired_epoch = has_begun() ? epoch_ : 0;
  outcome.left.reset();  // the epoch that it left is over
  outcome.epoch = ++epoch_;
  outcome.rows.resize(round.size());
  current_.clear();
  for (const auto& [slot, numbers] : round) {
    HVD_CHECK(waiting_.contains(slot), "a round is made of slots that wait");
    HVD_CHECK(numbers.rank >= 0 && static_cast<std::size_t>(numbers.rank) < round.size(), "ranks are 0 to size - 1");
    JoinBody& request = waiting_.at(slot);
    outcome.joined.emplace_back(members_.at(slot), numbers);
    outcome.rows[static_cast<std::size_t>(numbers.rank)] = request.row;
    current_.emplace(slot, Joined{request.nonce, numbers});
    give_up_seat(slot);
  }
  seen_.clear();
  for (const auto& [slot, request] : waiting_) seen_.insert(slot);
}

void JoinTable::give_up_seat(int slot) {
  row_bytes_ -= waiting_.at(slot).row.size();
  slots_.erase(members_.at(slot));
  members_.erase(slot);
  waiting_.erase(slot);
}

void JoinTable::leave(MemberId member) {
  if (const auto waits = slots_.find(member); waits != slots_.end()) give_up_seat(waits->second);
  std::erase_if(returning_, [member](const auto& other) { return other.second == member; });
}

void JoinTable::end_poll(MemberId member) {
  const int slot = slots_.at(member);
  give_up_seat(slot);
  returning_[slot] = member;
}

int JoinTable::first_slot() const {
  const int waits = waiting_.begin()->first;
  return returning_.empty() ? waits : std::min(waits, returning_.begin()->first);
}

}  // namespace hvd::rendezvous
