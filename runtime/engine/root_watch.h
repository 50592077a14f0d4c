#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/thread.h"
#include "runtime/engine/operation_table.h"
#include "runtime/engine/progress_watch.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/topology/tree_plan.h"

namespace hvd::engine {

// Finds out that the root, which decides what runs and looks for stalls, is stopped itself, or a relay on the way to
// it: an operation waits, and no decision comes. After the stall check time, or half of the limit of a collective that
// does not move if that is shorter, this rank asks whether the root is there, and again as often; it answers at once,
// with a decision. Where none comes in kAnswerLimit this rank warns alone. It gives up at the limit: then the root has
// left a question without an answer for half of it. Owned by the engine loop; pure; its time is the RunClock's.
class RootWatch {
 public:
  RootWatch(const topology::TreePlan& plan, int rank, const negotiation::StallOptions& options);

  // `waits_for`: the oldest operation that no decision has released. `seen`: the last decision that this rank has
  // applied.
  WaitFindings look(const std::optional<BlockedOn>& waits_for, std::uint64_t seen, TimePoint now);

 private:
  struct Silence {
    std::uint64_t seen = 0;
    TimePoint since;
    std::optional<TimePoint> asked_at;  // first
    TimePoint repeated_at;              // last
    bool warned = false;
  };

  ThreadChecker thread_;
  const int rank_;
  std::vector<int> above_;  // the root, and the relays on the way to it; ascending
  const negotiation::ProgressLimits limits_;
  std::optional<Silence> silence_;
};

}  // namespace hvd::engine
