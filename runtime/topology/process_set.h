#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/status.h"

namespace hvd::topology {

// The position of a member within its process set. Global ranks are plain ints; the two must never mix.
enum class SetRank : int {};
inline constexpr int index(SetRank rank) { return static_cast<int>(rank); }

// Some of the global ranks that run collectives among themselves. Immutable value.
// Invariants: ranks strictly ascending, 1 <= ranks.size(), every rank >= 0; `id` 0 is the set of all ranks.
struct ProcessSet {
  std::int32_t id = kGlobalProcessSet;
  std::uint64_t context_id = 0;  // unlike `id`, never reused within an epoch: names the set's data connections
  std::vector<int> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  std::optional<SetRank> set_rank(int global_rank) const;
  bool contains(int global_rank) const { return set_rank(global_rank).has_value(); }
  int global_rank(SetRank rank) const { return ranks[static_cast<std::size_t>(index(rank))]; }
  bool operator==(const ProcessSet&) const = default;
};

// " of process set 3", to follow the name of a tensor; "" for the global set, which nobody names.
std::string of_set(std::int32_t id);
// "[0, 2, 5]"; a long list is cut.
std::string ranks_text(const std::vector<int>& ranks);

// The registered process sets of one epoch. Value type, externally synchronised; every rank keeps an identical copy,
// because changes come only from the coordinator's decisions.
class ProcessSetTable {
 public:
  // Holds the global set 0 .. world_size-1 under id 0 and context id 0.
  explicit ProcessSetTable(int world_size);

  const ProcessSet* find(std::int32_t id) const;
  // The set with exactly these ranks (sorted), or null.
  const ProcessSet* find_by_ranks(const std::vector<int>& ranks) const;
  const std::map<std::int32_t, ProcessSet>& sets() const { return sets_; }
  int world_size() const { return world_size_; }

  // Sorts `ranks` and checks them: kInvalidArgument for none, a duplicate, or one outside 0 .. world_size-1.
  Result<std::vector<int>> normalise(std::vector<int> ranks) const;

  // For the coordinator: gives the set the oldest freed id or else the next one, and a new context id.
  // Requires: `ranks` came from normalise() and no such set exists.
  const ProcessSet& add(std::vector<int> ranks);
  // For the followers: stores what the coordinator decided. kInternal when the id is taken.
  Status insert(ProcessSet set);
  // kInvalidArgument for an unknown id and for the global set.
  Status remove(std::int32_t id);

 private:
  int world_size_;
  std::int32_t next_id_ = 1;
  std::uint64_t next_context_id_ = 1;
  std::deque<std::int32_t> free_ids_;  // oldest first
  std::map<std::int32_t, ProcessSet> sets_;
};

}  // namespace hvd::topology
