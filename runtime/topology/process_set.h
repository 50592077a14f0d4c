#pragma once

#include <cstdint>
#include <memory>
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

// Sorts `ranks` and checks them: kInvalidArgument for none, a duplicate, or one outside 0 .. world_size-1.
Result<std::vector<int>> normalise(std::vector<int> ranks, int world_size);

using ProcessSetPtr = std::shared_ptr<const ProcessSet>;

// All process sets of one epoch at one moment. A value; copies share the sets. Ranks keep and publish it as
// ProcessSets, which nobody changes: a change is made to a copy (docs/design/membership.md).
class ProcessSetTable {
 public:
  // Holds the global set 0 .. world_size-1 under id 0 and context id 0.
  explicit ProcessSetTable(int world_size);

  const ProcessSet* find(std::int32_t id) const;
  // For users that outlive the table; null when there is none.
  ProcessSetPtr share(std::int32_t id) const;
  // The set with exactly these ranks (sorted), or null.
  const ProcessSet* find_by_ranks(const std::vector<int>& ranks) const;
  // Ascending by id.
  const std::vector<ProcessSetPtr>& sets() const { return sets_; }
  int world_size() const { return world_size_; }

  // kInternal when the id is taken or a rank is none of this world's.
  Status insert(ProcessSet set);
  // kInvalidArgument for an unknown id and for the global set.
  Status remove(std::int32_t id);

  bool operator==(const ProcessSetTable& other) const;

 private:
  int world_size_;
  std::vector<ProcessSetPtr> sets_;  // by id
};

using ProcessSets = std::shared_ptr<const ProcessSetTable>;
ProcessSets initial_sets(int world_size);

}  // namespace hvd::topology
