#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/negotiation/small_tensor.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/tree_plan.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// Combines the ready bits of one node of the control tree. The node's subtree is divided into units: the node itself
// and the subtree of each child. A bit is complete when each unit that holds members of its set has reported it or has
// joined as a whole, and at least one has reported it. Used by every Relay and by the Coordinator; loop-confined.
// Invariant: it remembers at most the live bits, i.e. those announced and not evicted.
class BitCounter {
 public:
  BitCounter(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets);

  // The unit through which a rank's reports arrive: 0 for this node, 1 + position for a child's subtree; nullopt for a
  // rank outside.
  std::optional<int> unit_of(int rank) const;

  // kInternal when the report speaks for a rank that is not below (or is not) the neighbour it came from.
  Status check_senders(int from_rank, const wire::Report& report) const;
  // Follows a decision: new and evicted bits, executed bits, ended joins, changed process sets. Must see every decision
  // before the next reports of this rank and of its children.
  Status on_decision(const wire::Decision& decision);

  // A bit that is not live is ignored: it was evicted while the report was on its way, and its ranks will resubmit.
  // True when that completed the bit.
  bool report(wire::CacheBit bit, int unit);
  // The same with the unit's elements. Not ok when the tensor has not so many.
  Result<bool> report(wire::ReadyTensor tensor, int unit);
  // Of a bit that is complete: the units' elements, reduced in their order. Empty when not each has given its own.
  std::string take_elements(wire::CacheBit bit);
  // For the root, which knows of an eviction before it announces it.
  void forget(wire::CacheBit bit) { bits_.erase(wire::value(bit)); }
  // `rank` of this subtree has joined. Returns the bits of the set that are complete now, ascending.
  std::vector<wire::CacheBit> join(std::int32_t process_set, int rank);

  // Members of the set in this subtree; 0 when the set is unknown. Whether one of them, or each, has joined.
  int members(std::int32_t process_set) const;
  bool any_joined(std::int32_t process_set) const;
  bool all_joined(std::int32_t process_set) const;

 private:
  using Mask = std::uint32_t;
  static_assert(topology::TreePlan::kMaxRadix + 1 <= 32);
  struct SetState {
    Mask needed = 0;           // units with members
    std::vector<int> members;  // per unit
    std::vector<int> joined;   // per unit; joined[u] <= members[u]
    Mask fully_joined = 0;     // subset of needed
  };
  struct BitState {
    std::int32_t process_set = 0;
    Mask reported = 0;
    bool complete = false;  // reported once per use
    SmallTensors tensors;
    Mask with_elements = 0;             // units that have reported theirs
    std::vector<std::string> elements;  // per unit; empty until the first
  };
  struct Update;  // applies one item of a decision
  void add_set(std::int32_t id, const std::vector<int>& ranks);
  void remove_set(std::int32_t id);
  Status add_bit(const wire::Response& response);
  void clear_joins(std::int32_t process_set);
  // The bit was executed: the next use of it starts.
  void reset(wire::CacheBit bit);
  bool check_complete(BitState& bit, const SetState& set) const;

  topology::TreePlan plan_;
  int rank_;
  std::vector<int> children_;
  std::map<std::int32_t, SetState> sets_;
  std::unordered_map<std::uint64_t, BitState> bits_;
};

}  // namespace hvd::negotiation
