#include "runtime/engine/root_watch.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::engine {

RootWatch::RootWatch(const topology::TreePlan& plan, int rank, const negotiation::StallOptions& options)
    : rank_(rank), limits_(negotiation::progress_limits(options)) {
  for (int above = plan.parent(rank); above >= 0; above = plan.parent(above)) above_.push_back(above);
  std::ranges::reverse(above_);
}

WaitFindings RootWatch::look(const std::optional<BlockedOn>& waits_for, std::uint64_t seen, TimePoint now) {
  HVD_DCHECK(thread_.is_current(), "the watch is confined to hvd-engine");
  WaitFindings findings;
  if (!waits_for || above_.empty()) {
    silence_.reset();
    return findings;
  }
  if (!silence_ || silence_->seen != seen) silence_ = Silence{seen, now, {}, {}, false};
  const auto silent = std::chrono::duration_cast<Millis>(now - silence_->since);
  if (limits_.stuck_every.count() == 0 || silent < limits_.stuck_every) return findings;

  wire::Wait wait;
  wait.kind = wire::Wait::Kind::kUndecided;
  wait.process_set = waits_for->process_set;
  wait.context_id = wire::Wait::kNoContext;
  wait.op = waits_for->op;
  wait.name = waits_for->name;
  wait.turn = seen;
  wait.millis = wire::Wait::millis_of(silent);
  wait.ranks = {rank_};
  wait.peers = above_;
  if (!silence_->asked_at || now - silence_->repeated_at >= limits_.stuck_every) {
    findings.waits.push_back(wait);
    silence_->repeated_at = now;
    if (!silence_->asked_at) silence_->asked_at = now;
  }
  if (now - *silence_->asked_at < ProgressWatch::kAnswerLimit) return findings;
  if (limits_.warn && !std::exchange(silence_->warned, true)) findings.unanswered.push_back(wait);
  if (limits_.end && silent >= *limits_.end) findings.given_up = std::move(wait);
  return findings;
}

}  // namespace hvd::engine
