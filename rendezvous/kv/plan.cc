#include "rendezvous/kv/plan.h"

#include <algorithm>
#include <string_view>

namespace hvd::rendezvous {
namespace {

constexpr int kMaxSlotsNamed = 8;

struct Number {
  std::string_view variable;
  int RankNumbers::* value;
};
constexpr Number kNumbers[] = {
    {"HOROVOD_RANK", &RankNumbers::rank},
    {"HOROVOD_SIZE", &RankNumbers::size},
    {"HOROVOD_LOCAL_RANK", &RankNumbers::local_rank},
    {"HOROVOD_LOCAL_SIZE", &RankNumbers::local_size},
    {"HOROVOD_CROSS_RANK", &RankNumbers::cross_rank},
    {"HOROVOD_CROSS_SIZE", &RankNumbers::cross_size},
};

// What one side does not know is no contradiction.
Status check_agreement(int slot, const RankNumbers& environment, const RankNumbers& planned) {
  for (const Number& number : kNumbers) {
    const int has = environment.*number.value;
    const int expected = planned.*number.value;
    if (has == expected || has == RankNumbers::kUnknown || expected == RankNumbers::kUnknown) continue;
    return Status::precondition(std::string(number.variable) + " is " + std::to_string(has) +
                                " in the environment of the process in slot " + std::to_string(slot) +
                                ", but the job's plan has " + std::to_string(expected));
  }
  return Status::ok();
}

}  // namespace

std::shared_ptr<Plan> StaticPlan::of_size(int size) {
  std::vector<RankNumbers> slots;
  size = std::clamp(size, 0, kMaxSlots + 1);  // no more are looked at, because so many are refused
  slots.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) slots.push_back({.rank = rank, .size = size});
  return std::make_shared<StaticPlan>(std::move(slots));
}

Status StaticPlan::admit(const Seat& seat, const RankNumbers& environment) const {
  const int slot = seat.process.slot;
  if (slot < 0 || slot >= max_slots()) {
    return Status::invalid_argument("slot " + std::to_string(slot) + " is not of this job, which has " +
                                    std::to_string(max_slots()) + ": 0.." + std::to_string(max_slots() - 1));
  }
  return check_agreement(slot, environment, slots_[static_cast<std::size_t>(slot)]);
}

Result<Round> StaticPlan::decide(const Waiting& waiting) {
  Round round;
  if (waiting.size() < slots_.size()) return round;
  for (int slot = 0; slot < max_slots(); ++slot) round.emplace(slot, slots_[static_cast<std::size_t>(slot)]);
  return round;
}

std::string StaticPlan::describe_missing(const Waiting& waiting, const std::set<int>& seen) const {
  std::string never;
  std::string left;
  int named = 0;
  for (int slot = 0; slot < max_slots() && named < kMaxSlotsNamed; ++slot) {
    if (waiting.contains(slot)) continue;
    std::string& list = seen.contains(slot) ? left : never;
    list.append(list.empty() ? "" : ", ").append(std::to_string(slots_[static_cast<std::size_t>(slot)].rank));
    ++named;
  }
  std::string text = std::to_string(waiting.size()) + " of " + std::to_string(max_slots()) + " ranks wait";
  if (!never.empty()) text += "; never joined: " + never;
  if (!left.empty()) text += "; joined but wait no longer: " + left;
  if (slots_.size() - waiting.size() > static_cast<std::size_t>(named)) text += " and more";
  return text;
}

}  // namespace hvd::rendezvous
