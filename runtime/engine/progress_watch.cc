#include "runtime/engine/progress_watch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::engine {

using wire::Wait;

WaitFindings ProgressWatch::look(const std::vector<RunningBatch>& running, const std::optional<BlockedOn>& blocked,
                                 std::uint64_t seen, TimePoint now) {
  HVD_DCHECK(thread_.is_current(), "the watch is confined to hvd-engine");
  WaitFindings findings;
  std::erase_if(tracks_, [&](const auto& entry) {
    const std::uint64_t context_id = entry.first;
    const Track& track = entry.second;
    const bool runs =
        std::ranges::any_of(running, [&](const RunningBatch& batch) { return batch.context_id == context_id; });
    if (!runs && track.stuck) findings.waits.push_back(moving(context_id, track.process_set));
    return !runs;
  });
  for (const RunningBatch& batch : running) {
    const auto [at, is_new] = tracks_.try_emplace(batch.context_id);
    if (is_new) at->second.reported_at = now;
    look_at(batch, at->second, now, findings);
  }
  if (!proves_deadlocks_ || !blocked) {
    reported_block_.reset();
    return findings;
  }
  Wait wait;
  wait.process_set = blocked->process_set;
  wait.op = blocked->op;
  wait.name = blocked->name;
  wait.turn = seen;
  wait.ranks = {rank_};
  if (reported_block_ != wait) findings.waits.push_back(wait);
  reported_block_ = std::move(wait);
  return findings;
}

// moving -> stuck (no change for the limit, reported) -> overdue (reported again), and back as soon as anything moves.
// Each report is a question to the root; one that stays without an answer for kAnswerLimit means that the root is cut
// off or stuck itself: then this rank warns alone, and gives up if it is overdue.
void ProgressWatch::look_at(const RunningBatch& batch, Track& track, TimePoint now, WaitFindings& findings) const {
  if (batch.turn != track.turn || batch.progress != track.progress || batch.progress.waits_for.empty()) {
    return look_at_moving(batch, track, now, findings);
  }
  const auto stuck = std::chrono::duration_cast<Millis>(now - track.since);
  const bool overdue = limits_.end && stuck >= *limits_.end;
  if (!overdue && !(limits_.warn && stuck >= *limits_.warn)) return;
  const bool is_new = !track.stuck || (overdue && !track.stuck->reported_overdue);
  if (is_new || now - track.stuck->reported_at >= limits_.stuck_every) {
    findings.waits.push_back(wait_of(batch, overdue ? Wait::Kind::kOverdue : Wait::Kind::kRunning, stuck));
    if (!track.stuck) track.stuck = Track::Stuck{};
    track.stuck->reported_at = now;
    track.stuck->reported_overdue = overdue;
    if (!track.stuck->asked_at) track.stuck->asked_at = now;
  }
  if (!track.stuck->asked_at || now - *track.stuck->asked_at < kAnswerLimit) return;
  if (overdue) findings.given_up = wait_of(batch, Wait::Kind::kOverdue, stuck);
  if (limits_.warn && !std::exchange(track.stuck->warned, true)) {
    findings.unanswered.push_back(wait_of(batch, Wait::Kind::kRunning, stuck));
  }
}

// It moved, or computes without waiting for peers. The latter alone is not reported, because it may last for ever.
void ProgressWatch::look_at_moving(const RunningBatch& batch, Track& track, TimePoint now,
                                   WaitFindings& findings) const {
  track.has_moved |= batch.turn != track.turn || batch.progress != track.progress;
  track.process_set = batch.process_set;
  track.turn = batch.turn;
  track.progress = batch.progress;
  track.since = now;
  const bool was_stuck = std::exchange(track.stuck, std::nullopt).has_value();
  const bool is_due =
      (limits_.warn || limits_.end) && track.has_moved && now - track.reported_at >= limits_.moving_every;
  if (!was_stuck && !is_due) return;
  findings.waits.push_back(moving(batch.context_id, batch.process_set));
  track.reported_at = now;
  track.has_moved = false;
}

void ProgressWatch::answered(std::uint64_t context_id) {
  HVD_DCHECK(thread_.is_current(), "the watch is confined to hvd-engine");
  const auto track = tracks_.find(context_id);
  if (track != tracks_.end() && track->second.stuck) track->second.stuck->asked_at.reset();
}

Wait ProgressWatch::moving(std::uint64_t context_id, std::int32_t process_set) const {
  Wait wait;
  wait.kind = Wait::Kind::kMoving;
  wait.process_set = process_set;
  wait.context_id = context_id;
  // It may go on moving until the next such report is due, and stop for as long as it takes to report that it is stuck.
  const Millis stands = std::max(limits_.moving_every, RunClock::kPeriod) + limits_.says_stuck_after();
  wait.millis = Wait::millis_of(stands);
  wait.ranks = {rank_};
  return wait;
}

Wait ProgressWatch::wait_of(const RunningBatch& batch, Wait::Kind kind, Millis stuck) const {
  Wait wait;
  wait.kind = kind;
  wait.process_set = batch.process_set;
  wait.context_id = batch.context_id;
  wait.op = batch.op;
  wait.name = batch.name;
  wait.fused = batch.fused;
  wait.turn = batch.turn;
  wait.millis = Wait::millis_of(stuck);
  wait.ranks = {rank_};
  wait.peers = batch.progress.waits_for;
  return wait;
}

Status EndWatch::look(const std::vector<RunningBatch>& running, TimePoint now) {
  HVD_DCHECK(thread_.is_current(), "the watch is confined to one thread");
  std::uint64_t moved = 0;
  std::set<int> awaited;
  for (const RunningBatch& batch : running) {
    moved += batch.turn + batch.progress.moved;
    awaited.insert(batch.progress.waits_for.begin(), batch.progress.waits_for.end());
  }
  if (moved != std::exchange(moved_, moved) || awaited.empty() || !since_) {
    since_ = now;
    return Status::ok();
  }
  for (const auto& [rank, why] : lost_) {
    if (awaited.contains(rank) && now - *since_ >= kAfterLoss) {
      return Status::peer_lost("rank " + std::to_string(rank) + " has left before its collectives ended: " + why);
    }
  }
  if (now - *since_ < kLimit) return Status::ok();
  return Status::timeout("the job ends, and rank " + std::to_string(*awaited.begin()) +
                         " does not move in a collective");
}

}  // namespace hvd::engine
