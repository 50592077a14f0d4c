#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/tree_plan.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// What of a decision goes to which child of one node of the control tree: what concerns a process set goes only where
// members of it are, changes of the table of sets and a stop go to everybody. Children that get the same share a
// message. Owned by the engine, one per node, the root too; loop-confined; no I/O. Invariant: the decisions on one link
// have the sequence numbers 1, 2, ..., whatever the others get.
class DecisionRouter {
 public:
  DecisionRouter(topology::TreePlan plan, int rank);

  struct Outgoing {
    std::vector<int> children;
    Bytes message;
  };
  // Must see every decision that the node makes or gets, in order. Requires: Worker::restore saw it.
  std::vector<Outgoing> route(const wire::Decision& decision);

 private:
  using Mask = std::uint32_t;  // of children
  static_assert(topology::TreePlan::kMaxRadix <= 32);
  struct ItemRouter;  // applies one item and gives the children that it concerns
  // Children that get the same items of a decision and have got as many decisions before.
  struct Share {
    Mask children = 0;
    std::uint64_t sequence = 0;
  };
  std::vector<Share> split(Mask children, const std::vector<Mask>& concerned) const;
  Outgoing pack(const wire::Decision& decision, const std::vector<Mask>& concerned, const Share& share) const;

  topology::TreePlan plan_;
  int rank_;
  std::vector<int> children_;
  Mask everybody_ = 0;
  std::vector<std::uint64_t> sent_;  // by child: the sequence number of the last decision
  // Sets without members below some children, and their live bits; every other set concerns all children.
  std::unordered_map<std::int32_t, Mask> sets_;
  struct Bit {
    std::int32_t process_set = 0;
    Mask children = 0;
  };
  std::unordered_map<std::uint64_t, Bit> bits_;
};

}  // namespace hvd::negotiation
