// The part of SetNegotiation that finds groups of one name of which ranks submit unequal numbers of members. Their
// names differ then, so that no rank would find a partner for its own.
#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/group_name.h"
#include "runtime/negotiation/set_negotiation.h"

namespace hvd::negotiation {
namespace {

// A tensor of its own may be called like a member.
std::optional<GroupMember> membership(const wire::Request& request) {
  const auto member = group_member_of(request.name);
  return member && member->count == std::max(request.group_size, 1u) ? member : std::nullopt;
}

}  // namespace

void SetNegotiation::open_group(const wire::Request& request) {
  const auto member = membership(request);
  if (member && member->number == 1) open_groups_[std::string(member->group)].push_back(member->count);
}

void SetNegotiation::close_group(const wire::Request& request) {
  const auto member = membership(request);
  if (!member || member->number != 1) return;
  const auto open = open_groups_.find(std::string(member->group));
  if (open == open_groups_.end()) return;  // ranks disagree on whether it is a group: that has its own error
  if (std::erase(open->second, member->count); open->second.empty()) open_groups_.erase(open);
}

// Only when each rank has submitted all of one of them, or joined: until then the next request may be the one that is
// missing.
std::optional<SetNegotiation::UnequalGroups> SetNegotiation::find_unequal(const std::string& group) const {
  const auto open = open_groups_.find(group);
  if (open == open_groups_.end() || open->second.size() < 2) return std::nullopt;
  UnequalGroups found;
  for (const std::uint32_t count : open->second) {
    const auto first = by_name_.at(group_member_name(group, 1, count));
    found.firsts.push_back(first);
    for (std::uint32_t number = 1; number <= count; ++number) {
      const auto at = by_name_.find(group_member_name(group, number, count));
      if (at == by_name_.end() || at->second->reported != first->reported) return std::nullopt;
      found.members.push_back(at->second);
    }
  }
  for (int rank = 0; rank < set_->size(); ++rank) {
    const auto groups = std::ranges::count_if(found.firsts, [&](auto first) { return first->reported.contains(rank); });
    if (groups > 1 || (groups == 0 && !joins_.joined().contains(rank))) return std::nullopt;
  }
  const auto lowest_rank = [](auto pending) {
    return std::ranges::min(pending->classes, {}, [](const RequestClass& c) { return c.representative.rank; })
        .representative.rank;
  };
  std::ranges::sort(found.firsts, {}, lowest_rank);
  const auto gave = [&](auto first) {
    const std::uint32_t count = group_member_of(first->name)->count;
    return "rank " + std::to_string(lowest_rank(first)) + " gave " + std::to_string(count) +
           (count == 1 ? " tensor" : " tensors");
  };
  const OpType op = found.firsts[0]->classes.front().representative.op;
  found.message = "Mismatched groups for " + std::string(op_type_name(op)) + " \"" + group +
                  "\": " + gave(found.firsts[0]) + ", " + gave(found.firsts[1]) + ".";
  found.message.resize(std::min(found.message.size(), wire::kMaxTextBytes));
  return found;
}

// The members of all sizes get the error, and go to all ranks, which know none but their own: for these the others have
// joined.
void SetNegotiation::end_if_unequal(const std::string& group, TimePoint now) {
  const std::optional<UnequalGroups> unequal = find_unequal(group);
  if (!unequal) return;
  InFull failed;
  for (const auto pending : unequal->members) {
    wire::Response& response = failed.responses.emplace_back(make_response(*pending));
    response.error = StatusCode::kPrecondition;
    response.error_message = unequal->message;
    response.first_dims.clear();
    by_name_.erase(pending->name);
    pending_.erase(pending);
  }
  open_groups_.erase(group);
  push_ready(std::move(failed), now);
}

void SetNegotiation::end_unequal_groups(TimePoint now) {
  std::vector<std::string> several;
  for (const auto& [group, counts] : open_groups_) {
    if (counts.size() > 1) several.push_back(group);
  }
  for (const std::string& group : several) end_if_unequal(group, now);
}

std::vector<SetNegotiation::Doubt> SetNegotiation::doubtful_bits() const {
  std::vector<Doubt> doubts;
  for (const auto& [group, counts] : open_groups_) {
    for (const std::uint32_t count : counts) {
      for (const wire::CacheBit bit : cache_.groups_of_other_sizes(group, count)) {
        Doubt& doubt = doubts.emplace_back(Doubt{bit, {}});
        const topology::RankSet& reported = by_name_.at(group_member_name(group, 1, count))->reported;
        for (int rank = 0; rank < set_->size(); ++rank) {
          if (reported.contains(rank)) doubt.in_full.push_back(set_->global_rank(topology::SetRank{rank}));
        }
      }
    }
  }
  return doubts;
}

}  // namespace hvd::negotiation
