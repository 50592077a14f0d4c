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
std::string list_of(const std::vector<int>& ranks) {
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

std::string collective_text(const Wait& wait) {
  std::string text(op_type_name(wait.op));
  if (wait.op != OpType::kJoin) text += " \"" + wait.name + "\"";
  if (wait.fused > 0) text += " with " + std::to_string(wait.fused) + " more tensors";
  return text + topology::of_set(wait.process_set);
}

// The ranks that others wait for and that do not report that they wait themselves.
std::vector<int> silent_ranks(const Wait& wait) {
  std::vector<int> silent;
  std::ranges::set_difference(wait.peers, wait.ranks, std::back_inserter(silent));
  return silent;
}

std::string history_text(const Wait& wait) {
  return wait.history.empty() ? "" : ". Last operations of " + wait.history;
}

std::string undecided_text(const Wait& wait) {
  return collective_text(wait) + " has not begun for " + std::to_string(wait.millis / 1000) +
         " s: " + list_of(wait.ranks) + " waits for " + list_of(wait.peers) +
         (wait.peers.size() == 1
              ? ", which decides what runs and does not answer (is its process or host stopped?)"
              : ", which decide what runs, or pass it on, and do not answer (are their processes or hosts stopped?)") +
         history_text(wait);
}

}  // namespace

std::string stuck_text(const Wait& wait) {
  if (wait.kind == Wait::Kind::kUndecided) return undecided_text(wait);
  const std::vector<int> silent = silent_ranks(wait);
  const bool one = wait.ranks.size() == 1;
  std::string text =
      collective_text(wait) + " has not moved for " + std::to_string(wait.millis / 1000) + " s: " + list_of(wait.ranks);
  if (silent.empty()) {
    text += one ? " waits for " + list_of(wait.peers) : " wait for each other";
  } else {
    text += (one ? " waits for " : " wait for ") + list_of(silent) +
            (silent.size() == 1 ? ", which does not move (is its process or host stopped?)"
                                : ", which do not move (are their processes or hosts stopped?)");
  }
  return text + history_text(wait);
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
  if (wait.kind == Wait::Kind::kSubmitted) return add_blocked(wait);
  if (wait.kind == Wait::Kind::kMoving) return add_moving(wait, now);
  if (wait.kind == Wait::Kind::kUndecided) {  // that any decision comes is the answer
    if (std::ranges::find(answers_, Wait::kNoContext) == answers_.end()) answers_.push_back(Wait::kNoContext);
    return;
  }
  SetStuck& set = sets_[wait.context_id];
  forget_old(set, now);
  for (const int rank : wait.ranks) set.moves_until.erase(rank);
  const auto [at, fresh] = set.turns.try_emplace(wait.turn, Stuck{wait, now});
  if (!fresh) at->second.wait.merge(wait);
  at->second.reported_at = now;
  if (!set.look_at) set.look_at = now + kGather;
  if (wait.kind == Wait::Kind::kOverdue && !set.end_at) set.end_at = now + kGather;
}

void WaitBoard::add_blocked(const Wait& wait) {
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
}

// What a rank reported before it moved is void. Whom it waited for alone is not known any more when its report was
// merged with others, so all reports of the set go; ranks that are still stuck repeat theirs.
void WaitBoard::add_moving(const Wait& wait, TimePoint now) {
  SetStuck& set = sets_[wait.context_id];
  const TimePoint until = now + Millis(wait.millis) + kGather;
  for (const int rank : wait.ranks) set.moves_until[rank] = until;
  set.stands_until = std::max(set.stands_until, until);
  const auto has_said = [&](const auto& turn) {
    return std::ranges::any_of(wait.ranks,
                               [&](int rank) { return std::ranges::binary_search(turn.second.wait.ranks, rank); });
  };
  if (std::ranges::none_of(set.turns, has_said)) return;
  set.turns.clear();
  set.look_at.reset();
  set.end_at.reset();
  set.warned_turn = 0;
  answers_.push_back(wait.context_id);
}

// A rank that still waits repeats its report.
void WaitBoard::forget_old(SetStuck& set, TimePoint now) const {
  std::erase_if(set.turns, [&](const auto& turn) { return now - turn.second.reported_at > life(); });
  if (!set.turns.empty()) return;
  set.look_at.reset();
  set.end_at.reset();
}

// A context without reports has ended, or its collectives are too short to be reported.
void WaitBoard::forget_silent(TimePoint now) {
  std::erase_if(sets_, [&](const auto& entry) {
    const SetStuck& set = entry.second;
    if (set.look_at || set.end_at || set.stands_until > now) return false;
    return std::ranges::all_of(set.turns, [&](const auto& turn) { return now - turn.second.reported_at > life(); });
  });
}

std::optional<TimePoint> WaitBoard::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, set] : sets_) {
    for (const auto& due : {set.look_at, set.end_at}) {
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

std::optional<TimePoint> WaitBoard::take_moving(SetStuck& set, TimePoint now, Wait& all) {
  std::erase_if(set.moves_until, [now](const auto& moves) { return moves.second <= now; });
  std::optional<TimePoint> until;
  std::erase_if(all.peers, [&](int peer) {
    const auto moves = set.moves_until.find(peer);
    if (moves == set.moves_until.end()) return false;
    until = std::min(until.value_or(moves->second), moves->second);
    return true;
  });
  return silent_ranks(all).empty() ? until : std::nullopt;
}

StallVerdict WaitBoard::look_at_collectives(TimePoint now) {
  StallVerdict verdict;
  forget_silent(now);
  for (auto& [id, set] : sets_) {
    const bool ends = set.end_at && *set.end_at <= now;
    if (!ends && !(set.look_at && *set.look_at <= now)) continue;
    set.look_at.reset();
    if (ends) set.end_at.reset();
    Wait all = merged(set);
    const std::optional<TimePoint> until = take_moving(set, now, all);
    if (!ends || until) answers_.push_back(id);
    if (until) {  // one of them may have stopped since: then no report will come
      set.look_at = until;
      if (ends) set.end_at = until;
      continue;
    }
    if (ends) {
      wire::Stop stop = *make_stall(all, limits_).stop;
      verdict.rank = stop.rank;
      verdict.shutdown = std::move(stop.message);
    } else if (limits_.warn && set.warned_turn != set.turns.begin()->first) {
      verdict.warning += (verdict.warning.empty() ? "Stalled: " : "\nStalled: ") + stuck_text(all);
      if (const std::vector<int> silent = silent_ranks(all); !silent.empty()) verdict.waits_for = silent.front();
    }
    set.warned_turn = set.turns.begin()->first;
  }
  return verdict;
}

std::string WaitBoard::deadlock() {
  warned_at_ = blocked_at_;
  std::string text = "Deadlock: every rank waits for a tensor that other ranks have not submitted, so none goes on:";
  for (std::size_t i = 0; i < blocked_on_.size() && i < kTensorsShown; ++i) {
    text += "\n" + list_of(blocked_on_[i].ranks) + ": " + collective_text(blocked_on_[i]);
  }
  if (blocked_on_.size() > kTensorsShown)
    text += "\n... and " + std::to_string(blocked_on_.size() - kTensorsShown) + " more";
  return text + "\nDo ranks run unequal numbers of steps? A rank that has no more data calls hvd.join().";
}

}  // namespace hvd::negotiation
