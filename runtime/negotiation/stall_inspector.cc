#include "runtime/negotiation/stall_inspector.h"

#include <algorithm>

#include "runtime/topology/process_set.h"

namespace hvd::negotiation {
namespace {

constexpr std::size_t kRanksPerWarning = 64;
constexpr Millis kLongest{60000};  // between two reports of one rank

struct MissingRank {
  std::vector<std::string> names;
  std::size_t more = 0;
  bool beyond_shutdown = false;
};

std::string line_of(int rank, const MissingRank& missing, Millis shutdown_time) {
  std::string line = "\nrank " + std::to_string(rank);
  if (missing.beyond_shutdown) line += ", for more than " + seconds_text(shutdown_time);
  line += ": [";
  for (std::size_t i = 0; i < missing.names.size(); ++i) line += (i == 0 ? "" : ", ") + missing.names[i];
  return line + (missing.more > 0 ? ", ...]" : "]");
}

std::string list_ranks(const std::map<int, MissingRank>& missing, Millis shutdown_time) {
  std::string text;
  std::size_t listed = 0;
  for (const auto& [rank, what] : missing) {
    if (listed++ == kRanksPerWarning) {
      return text + "\n... and " + std::to_string(missing.size() - kRanksPerWarning) + " more ranks";
    }
    text += line_of(rank, what, shutdown_time);
  }
  return text;
}

}  // namespace

std::string seconds_text(Millis span) {
  const auto ms = span.count();
  if (ms % 1000 == 0) return std::to_string(ms / 1000) + " s";
  return std::to_string(ms) + " ms";
}

ProgressLimits progress_limits(const StallOptions& options) {
  ProgressLimits limits;
  if (options.no_progress.count() > 0) {
    limits.end = options.no_progress;
    limits.variable = "HOROVOD_GLOO_TIMEOUT_SECONDS";
  }
  if (options.enabled) {
    limits.warn = options.check_time;
    if (options.shutdown_time.count() > 0 && (!limits.end || options.shutdown_time <= *limits.end)) {
      limits.end = options.shutdown_time;
      limits.variable = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";
    }
  }
  if (!limits.warn && !limits.end) return limits;
  limits.stuck_every = std::min(limits.warn.value_or(kLongest), limits.end.value_or(2 * kLongest) / 2);
  limits.moving_every = std::min(limits.stuck_every, kLongest) / 4;
  return limits;
}

std::optional<TimePoint> StallInspector::next_deadline(std::optional<TimePoint> oldest) const {
  if (!options_.enabled || !oldest) return std::nullopt;
  const TimePoint due = *oldest + options_.check_time;
  return last_look_ ? std::max(due, *last_look_ + options_.check_time) : due;
}

StallVerdict StallInspector::look(const std::vector<WaitingTensor>& waiting, TimePoint now) {
  last_look_ = now;
  std::map<int, MissingRank> missing;
  const WaitingTensor* hopeless = nullptr;
  for (const WaitingTensor& tensor : waiting) {
    if (now - tensor.since < options_.check_time) continue;
    const bool beyond = options_.shutdown_time.count() > 0 && now - tensor.since >= options_.shutdown_time;
    if (beyond && hopeless == nullptr) hopeless = &tensor;
    for (const int rank : tensor.missing) {
      MissingRank& entry = missing[rank];
      entry.beyond_shutdown |= beyond;
      if (entry.names.size() < kStallNamesPerRank) {
        entry.names.push_back(tensor.name);
      } else {
        ++entry.more;
      }
    }
  }
  StallVerdict verdict;
  if (missing.empty()) return verdict;
  verdict.warning = "Stalled: some ranks have waited for more than " + seconds_text(options_.check_time) +
                    " for tensors" + topology::of_set(process_set_) +
                    " that other ranks did not submit. Do all ranks submit the same tensors? Missing ranks "
                    "and their tensors:" +
                    list_ranks(missing, options_.shutdown_time);
  verdict.waits_for = missing.begin()->first;
  if (hopeless != nullptr) {
    verdict.shutdown = "Stalled for more than " + seconds_text(options_.shutdown_time) + ": rank " +
                       std::to_string(hopeless->missing.front()) + " did not submit \"" + hopeless->name + "\"" +
                       topology::of_set(process_set_) + "; shutting down (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)";
  }
  return verdict;
}

}  // namespace hvd::negotiation
