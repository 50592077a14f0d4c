#include "runtime/engine/progress_watch.h"

#include <algorithm>

namespace hvd::engine {

using wire::Wait;

ProgressWatch::Findings ProgressWatch::look(const std::vector<RunningBatch>& running,
                                            const std::optional<BlockedOn>& blocked, std::uint64_t seen,
                                            TimePoint now) {
  Findings findings;
  std::erase_if(tracks_, [&](const auto& track) {
    return std::ranges::none_of(running, [&](const RunningBatch& batch) { return batch.context_id == track.first; });
  });
  for (const RunningBatch& batch : running) {
    look_at(batch, tracks_[batch.context_id], now, findings);
  }
  if (!proves_deadlocks_ || !blocked) {
    told_block_.reset();
    return findings;
  }
  Wait wait;
  wait.process_set = blocked->process_set;
  wait.op = blocked->op;
  wait.name = blocked->name;
  wait.turn = seen;
  wait.ranks = {rank_};
  if (told_block_ != wait) findings.waits.push_back({wait, true});
  told_block_ = std::move(wait);
  return findings;
}

void ProgressWatch::look_at(const RunningBatch& batch, Track& track, TimePoint now, Findings& findings) const {
  if (batch.turn != track.turn || batch.progress != track.progress || batch.progress.waits_for.empty()) {
    track = {batch.turn, batch.progress, now, std::nullopt, false};
    return;
  }
  const auto stuck = std::chrono::duration_cast<Millis>(now - track.since);
  const bool overdue = limits_.end && stuck >= *limits_.end;
  const bool warns = limits_.warn && stuck >= *limits_.warn && (!track.told_at || now - *track.told_at >= *limits_.warn);
  if (overdue && stuck >= *limits_.end + kAnswerLimit) {
    findings.forsaken = wait_of(batch, Wait::Kind::kOverdue, stuck);
  } else if (warns || (overdue && !track.told_overdue)) {
    findings.waits.push_back({wait_of(batch, overdue ? Wait::Kind::kOverdue : Wait::Kind::kRunning, stuck), !track.told_at});
    track.told_at = now;
    track.told_overdue = overdue;
  }
}

Wait ProgressWatch::wait_of(const RunningBatch& batch, Wait::Kind kind, Millis stuck) const {
  Wait wait;
  wait.kind = kind;
  wait.process_set = batch.process_set;
  wait.op = batch.op;
  wait.name = batch.name;
  wait.fused = batch.fused;
  wait.turn = batch.turn;
  wait.millis = static_cast<std::uint32_t>(stuck.count());
  wait.ranks = {rank_};
  wait.peers = batch.progress.waits_for;
  return wait;
}

}  // namespace hvd::engine
