#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/lane.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// The time by which this rank and the ranks that report to it are waited for. It stands still while this process does not
// run, because it was stopped (Ctrl-Z) or the machine slept: a gap between two readings says so. A gap in which nothing
// waited passes for the same and does no harm. Owned by the engine loop; pure.
class RunClock {
 public:
  static constexpr Millis kPeriod{500};  // of reading, or more often, as long as anything waits
  TimePoint read(TimePoint real) {
    const auto gap = real - last_.value_or(real);
    if (gap > 2 * kPeriod) stood_still_ += gap - kPeriod;
    last_ = real;
    return real - stood_still_;
  }

 private:
  std::optional<TimePoint> last_;
  SteadyClock::duration stood_still_{0};
};

// What this rank has to say about its waiting (wire::Wait), found by looking every RunClock::kPeriod, as long as it has
// operations. Owned by the engine loop; pure; its time is the RunClock's. A batch is stuck while it waits for peers and
// two looks at its progress are equal.
class ProgressWatch {
 public:
  // Only a thread that waits for so long can be part of a deadlock.
  static constexpr Millis kBlockedFor{1000};
  // So long after an overdue report, nobody above can be expected to decide.
  static constexpr Millis kAnswerLimit{3000};

  struct Said {
    wire::Wait wait;      // without `history`
    bool is_new = false;  // not said before of this batch, or this tensor
  };
  struct Findings {
    std::vector<Said> waits;
    std::optional<wire::Wait> forsaken;  // overdue, and no decision came
  };

  ProgressWatch(int rank, const negotiation::StallOptions& options)
      : rank_(rank), limits_(negotiation::progress_limits(options)), proves_deadlocks_(options.enabled) {}

  // `seen`: the last decision that this rank has applied.
  Findings look(const std::vector<RunningBatch>& running, const std::optional<BlockedOn>& blocked, std::uint64_t seen,
                TimePoint now);
  const negotiation::ProgressLimits& limits() const { return limits_; }

 private:
  struct Track {
    std::uint64_t turn = 0;
    collectives::PeerProgress progress;
    TimePoint since;                  // of the last movement
    std::optional<TimePoint> told_at;
    bool told_overdue = false;
  };
  void look_at(const RunningBatch& batch, Track& track, TimePoint now, Findings& findings) const;
  wire::Wait wait_of(const RunningBatch& batch, wire::Wait::Kind kind, Millis stuck) const;

  int rank_;
  negotiation::ProgressLimits limits_;
  bool proves_deadlocks_;
  std::map<std::uint64_t, Track> tracks_;  // by context id
  std::optional<wire::Wait> told_block_;
};

}  // namespace hvd::engine
