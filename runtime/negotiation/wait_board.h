#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiation/stall_inspector.h"
#include "runtime/topology/rank_set.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// What ranks have reported about their waiting (wire::Wait), and what follows from all of it: that a collective does
// not move and because of whom, that it has to be given up, or that the job is in a deadlock. Nothing is wrong with a
// rank whose peers move: it waits for its turn, however long that takes. Owned by the coordinator; pure.
class WaitBoard {
 public:
  // Ranks that wait for the same collective report it at slightly different times.
  static constexpr Millis kGather{1000};

  WaitBoard(int world_size, const StallOptions& options);

  void add(const wire::Wait& wait, TimePoint now);
  // When look_at_collectives() is due.
  std::optional<TimePoint> next_deadline() const;
  StallVerdict look_at_collectives(TimePoint now);
  // The contexts whose ranks have an answer to come (wire::WaitAnswer), after a look.
  std::vector<std::uint64_t> take_answers() { return std::exchange(answers_, {}); }

  // Those of which a report stands.
  std::size_t contexts() const { return sets_.size(); }

  // Every rank waits for a tensor and has seen decision `sequence`, the last one; when nothing is ready to be released
  // either, nothing will ever be. False once deadlock() has reported that.
  bool every_rank_waits(std::uint64_t sequence) const {
    return enabled_ && blocked_.full() && blocked_at_ == sequence && warned_at_ != sequence;
  }
  // Decision `sequence` answers questions and does nothing else: what was said of the one before it still holds.
  void only_answers(std::uint64_t sequence) {
    if (warned_at_ && *warned_at_ + 1 == sequence) warned_at_ = sequence;
  }
  // What to log then. Requires: every_rank_waits().
  std::string deadlock();

 private:
  // The reports of one batch.
  struct Stuck {
    wire::Wait wait;
    TimePoint reported_at;  // of the last report
  };
  // The batches of one set: ranks that are done with one wait in the next.
  struct SetStuck {
    std::map<std::uint64_t, Stuck> turns;
    TimePoint stands_until;                // the last of what follows
    std::map<int, TimePoint> moves_until;  // by rank: for so long its last word stands
    std::optional<TimePoint> look_at;
    std::optional<TimePoint> end_at;
    std::uint64_t warned_turn = 0;  // 0: none
  };
  void add_blocked(const wire::Wait& wait);
  void add_moving(const wire::Wait& wait, TimePoint now);
  static wire::Wait merged(const SetStuck& set);
  // Takes the peers that move out of `all`. When all that others wait for in the end move: until when that stands.
  static std::optional<TimePoint> take_moving(SetStuck& set, TimePoint now, wire::Wait& all);
  // How long a report stands that is not repeated.
  Millis life() const { return limits_.stuck_every + 3 * kGather; }
  void forget_old(SetStuck& set, TimePoint now) const;
  void forget_silent(TimePoint now);

  const ProgressLimits limits_;
  const bool enabled_;
  std::map<std::uint64_t, SetStuck> sets_;  // by context id
  std::vector<std::uint64_t> answers_;

  // Waits for tensors, of those ranks that have seen decision `blocked_at_`; older ones mean nothing.
  std::uint64_t blocked_at_ = 0;
  topology::RankSet blocked_;
  std::vector<wire::Wait> blocked_on_;
  std::optional<std::uint64_t> warned_at_;
};

// A collective that does not move, and who holds it up: those that others wait for and that do not wait themselves.
std::string stuck_text(const wire::Wait& wait);
// The decision of a rank that waits in vain for the root's.
wire::Decision make_stall(const wire::Wait& wait, const ProgressLimits& limits);

}  // namespace hvd::negotiation
