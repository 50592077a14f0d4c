#include "launcher/job/failures.h"

#include <signal.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxLaterFailures = 8;  // that the summary names
constexpr std::string_view kWordsOfAnEnd[] = {"its process ended", "closed by the other end",
                                              "Connection reset by peer", "Broken pipe"};
constexpr std::string_view kWordsOfAShutdown = " called shutdown() or ended";

// By a signal that a rank does not die of because others failed.
bool is_killed(const JobFailure& failure) {
  const int signal = failure.exit_code - 128;
  return signal == SIGKILL || signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
}

// Whether it may have waited for a rank that had left: a line of stderr says so in the runtime's words
// (negotiation/coordinator.cc), or nothing says what it was.
bool may_have_waited(const std::vector<std::string>& last_stderr_lines) {
  return last_stderr_lines.empty() || std::ranges::any_of(last_stderr_lines, [](const std::string& line) {
           return line.find(kWordsOfAShutdown) != line.npos;
         });
}

// Requires: it is a process that failed.
std::string line_of(const JobFailure& failure) {
  return "rank " + std::to_string(failure.who->rank) + " " + failure.what;
}

// Whether a line of stderr says, in the runtime's words (negotiation/coordinator.cc), that the rank is lost, and why in
// those of a connection whose other end has ended. A host that gives no sign of life has not called os._exit().
bool calls_ended(const std::string& line, int rank) {
  const std::string lost = "rank " + std::to_string(rank) + " is lost: ";
  const std::size_t at = line.find(lost);
  if (at == std::string::npos) return false;
  const std::string_view why = std::string_view(line).substr(at + lost.size());
  return std::ranges::any_of(kWordsOfAnEnd, [why](std::string_view words) { return why.find(words) != why.npos; });
}

bool is_same(const std::optional<Member>& a, const std::optional<Member>& b) { return a && b && a->slot == b->slot; }

}  // namespace

void Failures::process_failing(Member who) {
  if (!failing_ && !first_) failing_ = who;
}

void Failures::process_leaving(Member who) {
  if (!leaving_ && !failing_ && !first_) leaving_ = who;
}

void Failures::process_succeeded(Member who, const std::string& host) {
  good_ends_.push_back({.who = who, .host = host, .is_before_failure = !first_});
}

void Failures::add(JobFailure failure) {
  if (is_same(first_->who, failure.who)) {
    // It was recorded when it announced its failure; now its exit code is known.
    first_->exit_code = failure.exit_code;
    first_->what = std::move(failure.what);
    first_->status = failure.status;
    return;
  }
  // The failures that its end has caused may be reported before it, when it is on another host.
  const bool was_killed_before =
      is_killed(failure) && !is_killed(*first_) && first_->who && !is_same(failing_, first_->who);
  if (is_same(leaving_, failure.who) || was_killed_before) {
    later_.insert(later_.begin(), line_of(*first_));
    first_ = std::move(failure);
  } else if (later_.size() < kMaxLaterFailures) {
    later_.push_back(line_of(failure));
  }
}

std::optional<Member> Failures::left_before() const {
  return first_ && leaving_ && !is_same(leaving_, first_->who) ? leaving_ : std::nullopt;
}

std::optional<GoodEnd> Failures::lost_before(const std::vector<std::string>& last_stderr_lines) const {
  for (const GoodEnd& end : good_ends_) {
    const bool is_lost = std::ranges::any_of(last_stderr_lines,
                                             [&](const std::string& line) { return calls_ended(line, end.who.rank); });
    if (is_lost && !is_same(failing_, end.who)) return end;
  }
  return std::nullopt;
}

std::string circumstance_of(const Failures& failures, const std::vector<std::string>& last_stderr_lines) {
  if (const auto left = failures.left_before()) {
    return ", after rank " + std::to_string(left->rank) + " had left the job" +
           (may_have_waited(last_stderr_lines) ? " (unequal numbers of steps? see hvd.join())" : "");
  }
  const auto lost = failures.lost_before(last_stderr_lines);
  if (!lost) return "";
  const std::string rank = "rank " + std::to_string(lost->who.rank) + " on host " + lost->host;
  if (lost->is_before_failure) {
    return ", because " + rank + " had ended with exit code 0 while others needed it (did it call os._exit()?)";
  }
  return ", and " + rank + ", which it calls lost, has ended with exit code 0 (did it call os._exit()?)";
}

std::string error_summary(const Failures& failures, const std::vector<std::string>& last_stderr_lines,
                          bool are_in_sight) {
  if (!failures.first() || !failures.first()->who) return "";
  const JobFailure& first = *failures.first();
  const std::string rank = std::to_string(first.who->rank);
  std::string text = "the job failed: rank " + rank + " on host " + first.host + " (pid " + std::to_string(first.pid) +
                     ") " + first.what + " first" + circumstance_of(failures, last_stderr_lines);
  if (last_stderr_lines.empty()) {
    text += "; it wrote nothing to stderr";
  } else if (are_in_sight) {
    text += "; its last lines on stderr stand above, behind [" + rank + "]<stderr>:";
  } else {
    text += "; its last lines on stderr:";
    for (const std::string& line : last_stderr_lines) text += "\n    " + line;
  }
  if (const std::string cause = cause_of(first, last_stderr_lines); !cause.empty())
    text += "\nProbable cause: " + cause;
  for (const std::string& later : failures.later()) text += "\nAfter that, " + later;
  text += "\nProcess name: " + first.name + "\nExit code: " + std::to_string(first.exit_code);
  return text;
}

}  // namespace hvd::launcher
