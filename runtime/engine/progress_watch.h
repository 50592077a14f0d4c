#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/thread.h"
#include "runtime/engine/lane.h"
#include "runtime/negotiation/stall_inspector.h"
#include "runtime/wire/messages.h"

namespace hvd::engine {

// The time by which this rank and the ranks that report to it are waited for. It stands still while this process does
// not run, because it was stopped (Ctrl-Z) or the machine slept: a gap between two readings shows that. A gap in which
// nothing waited passes for the same and does no harm. Owned by the engine loop; pure.
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

// What a rank finds when it looks at its waiting. All without `history`.
struct WaitFindings {
  std::vector<wire::Wait> waits;       // to report
  std::vector<wire::Wait> unanswered;  // the root would warn of them and does not; each once
  std::optional<wire::Wait> given_up;  // unanswered and overdue
};

// What this rank reports about its waiting (wire::Wait), found by looking every RunClock::kPeriod, as long as it has
// operations. Owned by the engine loop; pure; its time is the RunClock's. A batch is stuck while it waits for peers and
// two looks at its progress are equal. Every report that one is stuck is a question, which the root answers: others
// move, or it has warned; or it ends the session. Batches that move report that now and then, so that the root knows.
class ProgressWatch {
 public:
  // Only a thread that waits for so long can be part of a deadlock.
  static constexpr Millis kBlockedFor{1000};
  // An answer that takes so long does not come: what does not move may be the root, or what leads to it.
  static constexpr Millis kAnswerLimit{3000};

  ProgressWatch(int rank, const negotiation::StallOptions& options)
      : rank_(rank), limits_(negotiation::progress_limits(options)), proves_deadlocks_(options.enabled) {}

  // `seen`: the last decision that this rank has applied.
  WaitFindings look(const std::vector<RunningBatch>& running, const std::optional<BlockedOn>& blocked,
                    std::uint64_t seen, TimePoint now);
  // The root has judged what this rank has reported of the batches of the context.
  void answered(std::uint64_t context_id);
  const negotiation::ProgressLimits& limits() const { return limits_; }

 private:
  struct Track {
    std::int32_t process_set = 0;
    std::uint64_t turn = 0;
    collectives::PeerProgress progress;
    TimePoint since;         // of the last movement
    TimePoint reported_at;   // that it moves; or it began
    bool has_moved = false;  // after that
    struct Stuck {
      TimePoint reported_at;
      bool reported_overdue = false;
      std::optional<TimePoint> asked_at;  // the first report without an answer
      bool warned = false;
    };
    std::optional<Stuck> stuck;  // reported
  };
  void look_at(const RunningBatch& batch, Track& track, TimePoint now, WaitFindings& findings) const;
  void look_at_moving(const RunningBatch& batch, Track& track, TimePoint now, WaitFindings& findings) const;
  wire::Wait moving(std::uint64_t context_id, std::int32_t process_set) const;
  wire::Wait wait_of(const RunningBatch& batch, wire::Wait::Kind kind, Millis stuck) const;

  ThreadChecker thread_;
  int rank_;
  negotiation::ProgressLimits limits_;
  bool proves_deadlocks_;
  std::map<std::uint64_t, Track> tracks_;  // by context id
  std::optional<wire::Wait> reported_block_;
};

// After a stop by agreement what runs may end, as far as the ranks are there that it needs; but nobody reports or
// decides any more. Finds out when it will not end. Owned by the engine loop; pure; its time is the RunClock's.
class EndWatch {
 public:
  // A rank that has left may be busy with what it got from it for so long, and one that is awaited in silence for so
  // long does not come.
  static constexpr Millis kAfterLoss{1000};
  static constexpr Millis kLimit{10000};

  void lost(int rank, const std::string& why) { lost_.emplace(rank, why); }
  // OK, or why what runs will not end.
  Status look(const std::vector<RunningBatch>& running, TimePoint now);

 private:
  ThreadChecker thread_;
  std::map<int, std::string> lost_;
  std::uint64_t moved_ = 0;
  std::optional<TimePoint> since_;  // it has moved like that
};

}  // namespace hvd::engine
