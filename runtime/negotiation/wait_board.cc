#include "runtime/negotiation/wait_board.h"

#include <algorithm>
#include <iterator>

#include "runtime/topology/process_set.h"

namespace hvd::negotiation {
namespace {

using wire::Wait;

constexpr std::size_t kRunsShown = 16;
constexpr std::size_t kTensorsShown = 16;

// "rank 3", "ranks 0-4, 7".
std::string who(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (runs++ == kRunsShown) return text + ", ... " + std::to_string(ranks.size()) + " in all";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string what(const Wait& wait) {
  std::string text(op_type_name(wait.op));
  if (wait.op != OpType::kJoin) text += " \"" + wait.name + "\"";
  if (wait.fused > 0) text += " with " + std::to_string(wait.fused) + " more tensors";
  return text + topology::of_set(wait.process_set);
}

// Those that are waited for and do not say that they wait themselves.
std::vector<int> silent_ranks(const Wait& wait) {
  std::vector<int> silent;
  std::ranges::set_difference(wait.peers, wait.ranks, std::back_inserter(silent));
  return silent;
}

}  // namespace

std::string stuck_text(const Wait& wait) {
  const std::vector<int> silent = silent_ranks(wait);
  const bool one = wait.ranks.size() == 1;
  std::string text = what(wait) + " has not moved for " + std::to_string(wait.millis / 1000) + " s: " + who(wait.ranks);
  if (silent.empty()) {
    text += one ? " waits for " + who(wait.peers) : " wait for each other";
  } else {
    text += (one ? " waits for " : " wait for ") + who(silent) +
            (silent.size() == 1 ? ", which does not move (is its process or host stopped?)"
                                : ", which do not move (are their processes or hosts stopped?)");
  }
  if (!wait.history.empty()) text += ". Last operations of " + wait.history;
  return text;
}

wire::Decision make_stall(const Wait& wait, const ProgressLimits& limits) {
  const std::vector<int> silent = silent_ranks(wait);
  wire::Decision decision;
  decision.stop = wire::Stop{wire::Stop::Kind::kStall, silent.empty() ? -1 : silent.front(),
                             "Stalled: " + stuck_text(wait) + "; shutting down (" + limits.variable + ")"};
  return decision;
}

WaitBoard::WaitBoard(int world_size, const StallOptions& options)
    : limits_(progress_limits(options)), enabled_(options.enabled), blocked_(world_size) {}

void WaitBoard::add(const Wait& wait, TimePoint now) {
  if (wait.kind == Wait::Kind::kSubmitted) {
    if (wait.turn < blocked_at_) return;
    if (wait.turn > blocked_at_) {
      blocked_at_ = wait.turn;
      blocked_.clear();
      blocked_on_.clear();
    }
    for (const int rank : wait.ranks) blocked_.insert(rank);
    const auto same = std::ranges::find_if(blocked_on_, [&](const Wait& other) { return other.same_wait(wait); });
    if (same == blocked_on_.end()) {
      blocked_on_.push_back(wait);
    } else {
      same->merge(wait);
    }
    return;
  }
  SetStuck& set = sets_[wait.process_set];
  forget_old(set, now);
  const auto [at, fresh] = set.turns.try_emplace(wait.turn, Stuck{wait, now, now});
  if (!fresh) at->second.wait.merge(wait);
  at->second.heard = now;
  if (set.turns.begin()->first != set.warned_turn && !set.warn_at) set.warn_at = now + kGather;
  if (wait.kind == Wait::Kind::kOverdue && !set.end_at) set.end_at = now + kGather;
}

// A rank that still waits says so again once per check time.
void WaitBoard::forget_old(SetStuck& set, TimePoint now) const {
  const Millis life = limits_.warn.value_or(Millis(0)) + 3 * kGather;
  std::erase_if(set.turns, [&](const auto& turn) { return now - turn.second.heard > life; });
  if (!set.turns.empty()) return;
  set.warn_at.reset();
  set.end_at.reset();
}

std::optional<TimePoint> WaitBoard::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, set] : sets_) {
    for (const auto& due : {set.warn_at, set.end_at}) {
      if (due && (!next || *due < *next)) next = due;
    }
  }
  return next;
}

// Its oldest batch, with the ranks and peers of all.
Wait WaitBoard::merged(const SetStuck& set) {
  Wait all = set.turns.begin()->second.wait;
  for (const auto& [turn, stuck] : set.turns) all.merge(stuck.wait);
  return all;
}

StallVerdict WaitBoard::look_at_collectives(TimePoint now) {
  StallVerdict verdict;
  for (auto& [id, set] : sets_) {
    const bool ends = set.end_at && *set.end_at <= now;
    const bool warns = set.warn_at && *set.warn_at <= now;
    if (!ends && !warns) continue;
    set.warn_at.reset();
    if (ends) {
      set.end_at.reset();
      wire::Stop stop = *make_stall(merged(set), limits_).stop;
      verdict.rank = stop.rank;
      verdict.shutdown = std::move(stop.message);
    } else if (set.warned_turn != set.turns.begin()->first) {
      verdict.warning += (verdict.warning.empty() ? "Stalled: " : "\nStalled: ") + stuck_text(merged(set));
    }
    set.warned_turn = set.turns.begin()->first;
  }
  return verdict;
}

std::string WaitBoard::deadlock() {
  told_at_ = blocked_at_;
  std::string text = "Deadlock: every rank waits for a tensor that other ranks have not submitted, so none goes on:";
  for (std::size_t i = 0; i < blocked_on_.size() && i < kTensorsShown; ++i) {
    text += "\n" + who(blocked_on_[i].ranks) + ": " + what(blocked_on_[i]);
  }
  if (blocked_on_.size() > kTensorsShown) text += "\n... and " + std::to_string(blocked_on_.size() - kTensorsShown) + " more";
  return text + "\nDo ranks run unequal numbers of steps? A rank that has no more data calls hvd.join().";
}

}  // namespace hvd::negotiation
