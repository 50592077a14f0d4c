#pragma once

#include <deque>

#include "runtime/base/status.h"
#include "runtime/negotiation/bit_counter.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/tree_plan.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// A node of the control tree other than the root: merges its own reports and those of its children into reports for its
// parent. A leaf is a relay without children. Owned by the engine, confined to its thread; no I/O, no clock.
class Relay {
 public:
  // Requires: rank > 0.
  Relay(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets);

  // A report of this rank's worker (from_rank == own rank) or of a child. kInternal when it speaks for ranks that are
  // not below the sender; nothing of it is used then, and the session has to end.
  Status add_report(int from_rank, wire::Report report);
  // A neighbour's connection ended.
  void add_lost(int rank, std::string message);

  bool has_report() const;
  // Bounded by wire::kMessageByteBudget: call it until has_report() is false.
  wire::Report take_report();

  // Must see every decision before the worker's and the children's next reports.
  Status on_decision(const wire::Decision& decision);

 private:
  BitCounter bits_;
  wire::Report out_;
  std::deque<wire::Request> requests_;
  std::deque<wire::SetChange> set_changes_;
};

}  // namespace hvd::negotiation
