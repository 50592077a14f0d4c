#include "runtime/topology/process_set.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace hvd::topology {

std::optional<SetRank> ProcessSet::set_rank(int global_rank) const {
  if (id == kGlobalProcessSet) {  // ranks[i] == i
    if (global_rank < 0 || global_rank >= size()) return std::nullopt;
    return SetRank{global_rank};
  }
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), global_rank);
  if (at == ranks.end() || *at != global_rank) return std::nullopt;
  return SetRank{static_cast<int>(at - ranks.begin())};
}

std::string of_set(std::int32_t id) {
  return id == kGlobalProcessSet ? std::string() : " of process set " + std::to_string(id);
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += ", ... " + std::to_string(ranks.size()) + " in all";
  return text + "]";
}

Result<std::vector<int>> normalise(std::vector<int> ranks, int world_size) {
  if (ranks.empty()) return Status::invalid_argument("a process set needs at least one rank");
  std::sort(ranks.begin(), ranks.end());
  if (ranks.front() < 0 || ranks.back() >= world_size) {
    const int bad = ranks.front() < 0 ? ranks.front() : ranks.back();
    return Status::invalid_argument("rank " + std::to_string(bad) + " of a process set is not in 0 .. " +
                                    std::to_string(world_size - 1));
  }
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) {
    return Status::invalid_argument("rank " + std::to_string(*twice) + " is listed twice in a process set");
  }
  return ranks;
}

namespace {

// Where the set with this id is, or would be.
auto position_of(const std::vector<ProcessSetPtr>& sets, std::int32_t id) {
  return std::lower_bound(sets.begin(), sets.end(), id,
                          [](const ProcessSetPtr& set, std::int32_t i) { return set->id < i; });
}

}  // namespace

ProcessSetTable::ProcessSetTable(int world_size) : world_size_(world_size) {
  HVD_CHECK(world_size >= 1, "a world has at least one rank");
  ProcessSet global;
  global.ranks.resize(static_cast<std::size_t>(world_size));
  std::iota(global.ranks.begin(), global.ranks.end(), 0);
  sets_.push_back(std::make_shared<const ProcessSet>(std::move(global)));
}

const ProcessSet* ProcessSetTable::find(std::int32_t id) const {
  const auto at = position_of(sets_, id);
  return at == sets_.end() || (*at)->id != id ? nullptr : at->get();
}

ProcessSetPtr ProcessSetTable::share(std::int32_t id) const {
  const auto at = position_of(sets_, id);
  return at == sets_.end() || (*at)->id != id ? nullptr : *at;
}

const ProcessSet* ProcessSetTable::find_by_ranks(const std::vector<int>& ranks) const {
  for (const ProcessSetPtr& set : sets_) {
    if (set->ranks == ranks) return set.get();
  }
  return nullptr;
}

Status ProcessSetTable::insert(ProcessSet set) {
  const std::int32_t id = set.id;
  if (set.ranks.empty() || set.ranks.front() < 0 || set.ranks.back() >= world_size_) {
    return Status::internal("process set " + std::to_string(id) + " holds ranks outside of 0 .. " +
                            std::to_string(world_size_ - 1));
  }
  const auto at = position_of(sets_, id);
  if (at != sets_.end() && (*at)->id == id) {
    return Status::internal("process set " + std::to_string(id) + " is registered already");
  }
  sets_.insert(at, std::make_shared<const ProcessSet>(std::move(set)));
  return Status::ok();
}

Status ProcessSetTable::remove(std::int32_t id) {
  if (id == kGlobalProcessSet) return Status::invalid_argument("the global process set cannot be removed");
  const auto at = position_of(sets_, id);
  if (at == sets_.end() || (*at)->id != id) {
    return Status::invalid_argument("process set " + std::to_string(id) + " is not registered");
  }
  sets_.erase(at);
  return Status::ok();
}

bool ProcessSetTable::operator==(const ProcessSetTable& other) const {
  return world_size_ == other.world_size_ &&
         std::equal(sets_.begin(), sets_.end(), other.sets_.begin(), other.sets_.end(),
                    [](const ProcessSetPtr& a, const ProcessSetPtr& b) { return a == b || *a == *b; });
}

ProcessSets initial_sets(int world_size) { return std::make_shared<const ProcessSetTable>(world_size); }

}  // namespace hvd::topology
