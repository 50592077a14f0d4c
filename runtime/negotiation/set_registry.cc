#include "runtime/negotiation/set_registry.h"

#include <algorithm>
#include <string>

namespace hvd::negotiation {
namespace {

using wire::SetChange;
using wire::SetDecision;

bool same_change(const SetChange& a, const SetChange& b) {
  return a.kind == b.kind && a.set_id == b.set_id && a.rank_lists == b.rank_lists;
}

std::string describe(const SetChange& change) {
  if (change.kind == SetChange::Kind::kRemove) return "remove process set " + std::to_string(change.set_id);
  if (change.kind == SetChange::Kind::kAdd) return "add process set " + topology::ranks_text(change.rank_lists.front());
  return std::to_string(change.rank_lists.size()) + " process set" + (change.rank_lists.size() == 1 ? "" : "s");
}

// Where two lists of process sets part, in words.
std::string difference(const SetChange& a, const SetChange& b) {
  if (a.kind != b.kind || a.rank_lists.size() != b.rank_lists.size()) {
    return "rank " + std::to_string(a.rank) + " gave " + describe(a) + ", rank " + std::to_string(b.rank) + " gave " + describe(b);
  }
  std::size_t i = 0;
  while (i < a.rank_lists.size() && a.rank_lists[i] == b.rank_lists[i]) ++i;
  return "entry " + std::to_string(i) + " differs between rank " + std::to_string(a.rank) + " and rank " + std::to_string(b.rank);
}

}  // namespace

SetRegistry::SetRegistry(int world_size) : table_(world_size), open_(static_cast<std::size_t>(world_size)) {}

void SetRegistry::add(SetChange change, TimePoint now) {
  auto& open = open_[static_cast<std::size_t>(change.rank)];
  if (open.empty()) ++ranks_waiting_;
  open.push_back({std::move(change), now});
}

std::optional<SetDecision> SetRegistry::next() {
  if (ranks_waiting_ < table_.world_size()) return std::nullopt;
  const SetChange first = open_.front().front().change;
  SetDecision decision;
  const auto other = std::find_if(open_.begin(), open_.end(), [&](const auto& q) { return !same_change(q.front().change, first); });
  if (other == open_.end()) {
    decision = apply(first);
  } else if (std::none_of(open_.begin(), open_.end(),
                          [](const auto& q) { return q.front().change.kind == SetChange::Kind::kStatic; })) {
    return std::nullopt;  // they wait until they agree
  } else {
    decision.kind = SetChange::Kind::kStatic;
    decision.error = StatusCode::kPrecondition;
    decision.error_message = "The process sets given to init() differ: " + difference(first, other->front().change);
  }
  for (auto& open : open_) {
    open.pop_front();
    if (open.empty()) --ranks_waiting_;
  }
  return decision;
}

std::optional<TimePoint> SetRegistry::oldest() const {
  std::optional<TimePoint> oldest;
  for (const auto& open : open_) {
    if (!open.empty() && (!oldest || open.front().since < *oldest)) oldest = open.front().since;
  }
  return oldest;
}

std::vector<WaitingTensor> SetRegistry::waiting() const {
  std::vector<WaitingTensor> found;
  std::vector<const SetChange*> told;
  for (const auto& open : open_) {
    if (open.empty()) continue;
    const SetChange& change = open.front().change;
    if (std::any_of(told.begin(), told.end(), [&](const SetChange* other) { return same_change(*other, change); })) continue;
    told.push_back(&change);
    WaitingTensor tensor{describe(change), open.front().since, {}};
    for (std::size_t rank = 0; rank < open_.size(); ++rank) {
      const auto& other = open_[rank];
      if (!other.empty() && same_change(other.front().change, change)) {
        tensor.since = std::min(tensor.since, other.front().since);
      } else {
        tensor.missing.push_back(static_cast<int>(rank));
      }
    }
    found.push_back(std::move(tensor));
  }
  return found;
}

SetDecision SetRegistry::apply(const SetChange& change) {
  SetDecision decision;
  decision.kind = change.kind;
  if (change.kind == SetChange::Kind::kRemove) {
    if (const Status removed = table_.remove(change.set_id); removed.is_ok()) {
      decision.entries.push_back({change.set_id, 0, false, {}});
    } else {
      decision.error = removed.code();
      decision.error_message = removed.message();
    }
    return decision;
  }
  for (const std::vector<int>& ranks : change.rank_lists) {  // all or none
    if (const auto checked = table_.normalise(ranks); !checked.is_ok()) {
      decision.error = checked.status().code();
      decision.error_message = checked.status().message();
      return decision;
    }
  }
  for (const std::vector<int>& ranks : change.rank_lists) {
    const std::vector<int> sorted = table_.normalise(ranks).value();
    if (const topology::ProcessSet* same = table_.find_by_ranks(sorted)) {
      decision.entries.push_back({same->id, same->context_id, true, same->ranks});
    } else {
      const topology::ProcessSet& set = table_.add(sorted);
      decision.entries.push_back({set.id, set.context_id, false, set.ranks});
    }
  }
  return decision;
}

}  // namespace hvd::negotiation
