#pragma once

#include <list>
#include <optional>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/negotiation/bit_counter.h"
#include "runtime/negotiation/request_merger.h"
#include "runtime/topology/process_set.h"
#include "runtime/topology/tree_plan.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// A node of the control tree other than the root: merges its own reports and those of its children into reports for its
// parent. A leaf is a relay without children. Owned by the engine, confined to its thread; no I/O, no clock.
class Relay {
 public:
  // So long a join waits for others below this node: ranks often join together, and each would be a message at the
  // root. It is not held where the whole subtree has joined, and leaves with whatever leaves.
  static constexpr std::chrono::milliseconds kJoinHold{2};

  // Requires: rank > 0.
  Relay(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // A report of this rank's worker (from_rank == own rank) or of a child. kInternal when it speaks for ranks that are
  // not below the sender; the session has to end.
  Status add_report(int from_rank, wire::Report report, TimePoint now);
  // A neighbour's connection ended.
  void add_lost(int rank, std::string message);

  bool has_report(TimePoint now) const;
  // Bounded by wire::kMessageByteBudget (a single large request may exceed it): call it until has_report() is false.
  wire::Report take_report(TimePoint now);
  // When has_report() will become true by itself; nullopt: never.
  std::optional<TimePoint> next_deadline() const;

  // Must see every decision before the worker's and the children's next reports.
  Status on_decision(const wire::Decision& decision);

 private:
  void add_complete(wire::CacheBit bit);
  void add_wait(wire::Wait wait, TimePoint now);
  // A change of process sets that the rest of the subtree has not asked for yet, as far as kHold allows.
  struct HeldChange {
    wire::MergedChange merged;
    TimePoint since;
  };
  Status add_change(wire::MergedChange merged, TimePoint now);
  bool may_leave(const HeldChange& held, TimePoint now) const;
  bool joins_may_leave(TimePoint now) const;
  bool take_requests(wire::Report& report, std::size_t& room);

  int subtree_size_;
  BitCounter bits_;
  RequestMerger requests_;
  wire::Report out_;
  std::size_t elements_bytes_ = 0;         // in it
  std::list<HeldChange> changes_;          // they leave in this order
  std::vector<wire::Report::Join> joins_;  // and when the first came
  TimePoint joins_since_{};
  // Waits of kind moving, and when the first came. They are routine: held like requests, so that many leave as one.
  std::vector<wire::Wait> moving_;
  TimePoint moving_since_{};
};

}  // namespace hvd::negotiation
