#include "runtime/negotiation/set_registry.h"

#include <algorithm>
#include <string>

#include "runtime/base/check.h"

namespace hvd::negotiation {
namespace {

using wire::SetChange;
using wire::SetDecision;

// Process sets given to init().
std::size_t listed(const SetChange& change) { return change.digests.size(); }

std::string describe(const SetChange& change) {
  if (change.kind == SetChange::Kind::kRemove) return "remove process set " + std::to_string(change.set_id);
  if (change.kind == SetChange::Kind::kAdd) return "add process set " + topology::ranks_text(change.rank_lists.front());
  return count_text(static_cast<std::int64_t>(listed(change)), "process set");
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

SetRegistry::SetRegistry(int world_size)
    : sets_(topology::initial_sets(world_size)), open_(static_cast<std::size_t>(world_size)) {}

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
  if (ranks_waiting_ < sets_->world_size()) return;
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

// Every rank's oldest request is answered at once, also by an error, so that each decision answers the oldest one of
// each rank and none is left behind.
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
  std::vector<const Open*> listed_changes;
  for (const auto& open : open_) {
    if (open.empty()) continue;
    const Open& change = open.front();
    if (std::any_of(listed_changes.begin(), listed_changes.end(),
                    [&](const Open* other) { return same(*other, change); }))
      continue;
    listed_changes.push_back(&change);
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
  topology::ProcessSetTable next = *sets_;
  const Status changed = change.kind == SetChange::Kind::kRemove ? remove(change.set_id, next, decision)
                                                                 : add(change.rank_lists, next, decision);
  if (!changed.is_ok()) {
    decision.error = changed.code();
    decision.error_message = changed.message();
  }
  if (decision.changes_sets()) sets_ = std::make_shared<const topology::ProcessSetTable>(std::move(next));
  return decision;
}

Status SetRegistry::remove(std::int32_t id, topology::ProcessSetTable& table, SetDecision& decision) {
  HVD_RETURN_IF_ERROR(table.remove(id));
  free_ids_.push_back(id);
  decision.entries.push_back({id, 0, false, {}});
  return Status::ok();
}

// All or none: what is wrong with one list is found before the first is registered.
Status SetRegistry::add(const std::vector<std::vector<int>>& lists, topology::ProcessSetTable& table,
                        SetDecision& decision) {
  std::vector<std::vector<int>> sorted;
  for (const std::vector<int>& ranks : lists) {
    HVD_ASSIGN_OR_RETURN(sorted.emplace_back(), topology::normalise(ranks, table.world_size()));
  }
  for (std::vector<int>& ranks : sorted) {
    if (const topology::ProcessSet* same = table.find_by_ranks(ranks)) {
      decision.entries.push_back({same->id, same->context_id, true, same->ranks});
      continue;
    }
    std::int32_t id = 0;
    if (free_ids_.empty()) {
      id = next_id_++;
    } else {
      id = free_ids_.front();
      free_ids_.pop_front();
    }
    const std::uint64_t context_id = next_context_id_++;
    decision.entries.push_back({id, context_id, false, ranks});
    HVD_CHECK(table.insert({id, context_id, std::move(ranks)}).is_ok(), "a free id is not in use");
  }
  return Status::ok();
}

}  // namespace hvd::negotiation
