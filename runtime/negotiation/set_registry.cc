#include "runtime/negotiation/set_registry.h"

#include <algorithm>
#include <string>

namespace hvd::negotiation {
namespace {

using wire::SetChange;
using wire::SetDecision;

// Process sets given to init().
std::size_t listed(const SetChange& change) { return change.digests.size(); }

std::string describe(const SetChange& change) {
  if (change.kind == SetChange::Kind::kRemove) return "remove process set " + std::to_string(change.set_id);
  if (change.kind == SetChange::Kind::kAdd) return "add process set " + topology::ranks_text(change.rank_lists.front());
  return std::to_string(listed(change)) + " process set" + (listed(change) == 1 ? "" : "s");
}

// Where two lists of process sets part, in words.
std::string difference(const SetChange& a, int rank_a, const SetChange& b, int rank_b) {
  if (a.kind != b.kind || listed(a) != listed(b)) {
    return "rank " + std::to_string(rank_a) + " gave " + describe(a) + ", rank " + std::to_string(rank_b) + " gave " +
           describe(b);
  }
  std::size_t i = 0;
  while (i < listed(a) && a.digests[i] == b.digests[i]) ++i;
  return "entry " + std::to_string(i) + " differs between rank " + std::to_string(rank_a) + " and rank " +
         std::to_string(rank_b);
}

}  // namespace

bool same_change(const SetChange& a, const SetChange& b) {
  if (a.kind != b.kind || a.set_id != b.set_id) return false;
  return a.kind == SetChange::Kind::kStatic ? a.digests == b.digests : a.rank_lists == b.rank_lists;
}

SetRegistry::SetRegistry(int world_size) : table_(world_size), open_(static_cast<std::size_t>(world_size)) {}

void SetRegistry::add(const wire::MergedChange& merged, TimePoint now) {
  const auto change = std::make_shared<const SetChange>(merged.change);
  for (const wire::RankRun& run : merged.ranks) {
    for (int rank = run.first; rank < run.first + run.count; ++rank) {
      auto& open = open_[static_cast<std::size_t>(rank)];
      if (open.empty()) ++ranks_waiting_;
      open.push_back({change, now});
    }
  }
  if (!oldest_) oldest_ = now;  // time does not run backwards
  looked_ = false;
}

bool SetRegistry::same(const Open& a, const Open& b) {
  return a.change == b.change || same_change(*a.change, *b.change);
}

// Compares the oldest requests of all ranks, once for all that was added.
void SetRegistry::look() {
  if (looked_) return;
  looked_ = true;
  decidable_ = false;
  if (ranks_waiting_ < table_.world_size()) return;
  const Open& first = open_.front().front();
  const auto other = std::find_if(open_.begin(), open_.end(), [&](const auto& q) { return !same(q.front(), first); });
  other_ = static_cast<std::size_t>(other - open_.begin());
  // Ranks that differ wait until they agree, except at init.
  decidable_ = other == open_.end() || std::any_of(open_.begin(), open_.end(), [](const auto& q) {
                 return q.front().change->kind == SetChange::Kind::kStatic;
               });
}

const SetChange* SetRegistry::agreed() {
  look();
  return decidable_ && other_ == open_.size() ? open_.front().front().change.get() : nullptr;
}

std::optional<SetDecision> SetRegistry::next() {
  look();
  if (!decidable_) return std::nullopt;
  const std::shared_ptr<const SetChange> first = open_.front().front().change;  // rank 0's: it has the lists
  SetDecision decision;
  if (other_ == open_.size()) {
    decision = apply(*first);
  } else {
    decision.kind = SetChange::Kind::kStatic;
    decision.error = StatusCode::kPrecondition;
    decision.error_message = "The process sets given to init() differ: " +
                             difference(*first, 0, *open_[other_].front().change, static_cast<int>(other_));
  }
  oldest_.reset();
  for (auto& open : open_) {
    open.pop_front();
    if (open.empty()) {
      --ranks_waiting_;
    } else if (!oldest_ || open.front().since < *oldest_) {
      oldest_ = open.front().since;
    }
  }
  looked_ = false;
  return decision;
}

std::vector<WaitingTensor> SetRegistry::waiting() const {
  std::vector<WaitingTensor> found;
  std::vector<const Open*> told;
  for (const auto& open : open_) {
    if (open.empty()) continue;
    const Open& change = open.front();
    if (std::any_of(told.begin(), told.end(), [&](const Open* other) { return same(*other, change); })) continue;
    told.push_back(&change);
    WaitingTensor tensor{describe(*change.change), change.since, {}};
    for (std::size_t rank = 0; rank < open_.size(); ++rank) {
      const auto& other = open_[rank];
      if (!other.empty() && same(other.front(), change)) {
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
