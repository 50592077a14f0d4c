#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/topology/process_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// Whether two requests ask for the same.
bool same_change(const wire::SetChange& a, const wire::SetChange& b);

// The coordinator's side of registering and removing process sets: a change is decided when the oldest open request of
// every rank asks for the same. Ranks that ask for different ones wait for each other, except at
// init, where that is an error. Owns the table as decided, and gives out ids. Loop-confined.
class SetRegistry {
 public:
  explicit SetRegistry(int world_size);

  // After the last decision that next() gave.
  const topology::ProcessSets& sets() const { return sets_; }
  void add(const wire::MergedChange& merged, TimePoint now);
  // What next() will decide, without errors of that change itself; null: nothing. Cheap when nothing was added.
  const wire::SetChange* agreed();
  // The next decision that all ranks agree on, applied to the table; nullopt: none. Call until nullopt.
  std::optional<wire::SetDecision> next();

  // For the stall inspector: when the oldest undecided request came, and each change that some ranks ask for with the
  // ranks that ask for something else or for nothing.
  std::optional<TimePoint> oldest() const { return oldest_; }
  std::vector<WaitingTensor> waiting() const;

 private:
  struct Open {
    std::shared_ptr<const wire::SetChange> change;  // shared by the ranks whose requests came merged
    TimePoint since;
  };
  static bool same(const Open& a, const Open& b);
  void look();
  wire::SetDecision apply(const wire::SetChange& change);
  Status remove(std::int32_t id, topology::ProcessSetTable& table, wire::SetDecision& decision);
  Status add(const std::vector<std::vector<int>>& lists, topology::ProcessSetTable& table, wire::SetDecision& decision);

  topology::ProcessSets sets_;
  std::int32_t next_id_ = 1;
  std::uint64_t next_context_id_ = 1;
  std::deque<std::int32_t> free_ids_;   // oldest first
  std::vector<std::deque<Open>> open_;  // per rank, oldest first
  int ranks_waiting_ = 0;               // ranks with an open request
  std::optional<TimePoint> oldest_;
  bool looked_ = true;      // nothing was added since look()
  std::size_t other_ = 0;   // what look() found: the first rank that asks for something else
  bool decidable_ = false;  // likewise
};

}  // namespace hvd::negotiation
