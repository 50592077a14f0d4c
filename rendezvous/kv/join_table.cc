#include "rendezvous/kv/join_table.h"

#include <algorithm>
#include <utility>

namespace hvd::rendezvous {
namespace {

constexpr int kMaxRanksNamed = 8;

JoinOutcome failure(Status error) {
  JoinOutcome outcome;
  outcome.error = std::move(error);
  return outcome;
}

}  // namespace

JoinOutcome JoinTable::join(JoinRequest request, MemberId member) {
  HVD_CHECK(!members_.contains(member), "a member waits in one group at a time");
  if (Status bad = check(request); !bad.is_ok()) return failure(std::move(bad));

  auto known = groups_.find(request.group);
  if (known == groups_.end()) {
    if (groups_.size() >= limits_.groups) {
      return failure(Status::precondition("group \"" + request.group + "\" does not fit: there are " +
                                          std::to_string(groups_.size()) + " groups, the limit"));
    }
    known = groups_.emplace(request.group, Group{}).first;
  }
  Group& group = known->second;
  const auto index = static_cast<std::size_t>(request.rank);
  if (group.epoch != 0 && index < group.epoch_nonces.size() && group.epoch_nonces[index] == request.nonce) {
    JoinOutcome again;
    again.epoch = group.epoch;
    return again;
  }
  if (!group.seats.empty() && group.size != request.size) {
    return fail_round(group, Status::precondition(
                                 "ranks of group \"" + request.group + "\" disagree on its size: rank " +
                                 std::to_string(request.rank) + " says " + std::to_string(request.size) + ", rank " +
                                 std::to_string(group.seats.begin()->first) + " says " + std::to_string(group.size)));
  }

  JoinOutcome outcome;
  if (auto seat = group.seats.find(request.rank); seat != group.seats.end()) {
    if (seat->second.nonce != request.nonce) {
      outcome.replaced_error = Status::precondition("another process joined group \"" + request.group + "\" as rank " +
                                                    std::to_string(request.rank) + " and took this one's place");
    } else {
      outcome.replaced_error = Status::aborted("the same client joined again on another connection");
    }
    outcome.replaced = seat->second.member;
    remove_seat(group, request.rank);
  }
  row_bytes_ += request.row.size();
  members_.emplace(member, std::pair(request.group, request.rank));
  group.size = request.size;
  group.seen.insert(request.rank);
  group.seats.emplace(request.rank, Seat{member, request.nonce, std::move(request.row)});
  if (group.seats.size() < static_cast<std::size_t>(group.size)) return outcome;

  JoinOutcome completed = complete(group, member);
  completed.replaced = outcome.replaced;
  completed.replaced_error = std::move(outcome.replaced_error);
  return completed;
}

Status JoinTable::check(const JoinRequest& request) const {
  if (request.size < 1 || request.size > limits_.group_size) {
    return Status::invalid_argument("size " + std::to_string(request.size) + " of group \"" + request.group +
                                    "\" is not in 1.." + std::to_string(limits_.group_size));
  }
  if (request.rank < 0 || request.rank >= request.size) {
    return Status::invalid_argument("rank " + std::to_string(request.rank) + " of group \"" + request.group +
                                    "\" is not in 0.." + std::to_string(request.size - 1));
  }
  if (request.row.size() > limits_.row_bytes) {
    return Status::invalid_argument("the row of rank " + std::to_string(request.rank) + " has " +
                                    std::to_string(request.row.size()) + " bytes; at most " +
                                    std::to_string(limits_.row_bytes) + " are allowed");
  }
  if (request.row.size() > limits_.total_row_bytes - row_bytes_) {
    return Status::precondition("the row of rank " + std::to_string(request.rank) +
                                " does not fit: waiting rows have " + std::to_string(row_bytes_) + " of at most " +
                                std::to_string(limits_.total_row_bytes) + " bytes");
  }
  return Status::ok();
}

JoinOutcome JoinTable::fail_round(Group& group, Status error) {
  JoinOutcome outcome = failure(std::move(error));
  while (!group.seats.empty()) {
    outcome.failed.push_back(group.seats.begin()->second.member);
    remove_seat(group, group.seats.begin()->first);
  }
  return outcome;
}

JoinOutcome JoinTable::complete(Group& group, MemberId caller) {
  JoinOutcome outcome;
  outcome.retired_epoch = std::exchange(group.epoch, ++last_epoch_);
  outcome.epoch = group.epoch;
  group.epoch_nonces.clear();
  group.seen.clear();
  while (!group.seats.empty()) {
    auto& [rank, seat] = *group.seats.begin();
    if (seat.member != caller) outcome.others.push_back(seat.member);
    group.epoch_nonces.push_back(seat.nonce);
    outcome.rows.push_back(seat.row);
    remove_seat(group, rank);
  }
  return outcome;
}

void JoinTable::remove_seat(Group& group, int rank) {
  auto seat = group.seats.find(rank);
  row_bytes_ -= seat->second.row.size();
  members_.erase(seat->second.member);
  group.seats.erase(seat);
}

void JoinTable::leave(MemberId member) {
  auto waiting = members_.find(member);
  if (waiting == members_.end()) return;
  const auto [name, rank] = waiting->second;
  remove_seat(groups_.at(name), rank);
}

std::string JoinTable::describe_missing(MemberId member) const {
  const auto waiting = members_.find(member);
  if (waiting == members_.end()) return "";
  const auto& [name, rank] = waiting->second;
  const Group& group = groups_.at(name);
  std::string never;
  std::string left;
  int named = 0;
  for (int other = 0; other < group.size && named < kMaxRanksNamed; ++other) {
    if (group.seats.contains(other)) continue;
    std::string& list = group.seen.contains(other) ? left : never;
    list.append(list.empty() ? "" : ", ").append(std::to_string(other));
    ++named;
  }
  const std::size_t missing = static_cast<std::size_t>(group.size) - group.seats.size();
  std::string text = std::to_string(group.seats.size()) + " of " + std::to_string(group.size) + " ranks of group \"" +
                     name + "\" wait";
  if (!never.empty()) text += "; never joined: " + never;
  if (!left.empty()) text += "; joined but wait no longer: " + left;
  if (missing > static_cast<std::size_t>(named)) text += " and more";
  return text;
}

int JoinTable::first_rank(MemberId member) const { return *groups_.at(members_.at(member).first).seen.begin(); }

bool JoinTable::is_current(std::uint64_t epoch) const {
  return epoch != 0 && std::ranges::any_of(groups_, [epoch](const auto& entry) { return entry.second.epoch == epoch; });
}

}  // namespace hvd::rendezvous
