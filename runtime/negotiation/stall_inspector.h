#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horovod/types.h"
#include "runtime/base/deadline.h"

namespace hvd::negotiation {

struct StallOptions {
  bool enabled = true;         // !HOROVOD_STALL_CHECK_DISABLE
  Millis check_time{60000};    // HOROVOD_STALL_CHECK_TIME_SECONDS; > 0 when enabled
  Millis shutdown_time{0};     // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never, else >= check_time
  Millis no_progress{300000};  // HOROVOD_GLOO_TIMEOUT_SECONDS, if set: of a collective that runs; 0: never
};

// How long a collective that runs may make no progress.
struct ProgressLimits {
  std::optional<Millis> warn;  // then it is reported
  std::optional<Millis> end;   // then the session ends
  Millis stuck_every{0};       // a rank repeats that it does not move; at least twice before `end`
  Millis moving_every{0};      // a rank reports that it moves; several times before either limit. 0: neither limit
  const char* variable = "";   // where `end` comes from

  // Without movement. 0: never.
  Millis says_stuck_after() const {
    return std::min(warn.value_or(end.value_or(Millis(0))), end.value_or(warn.value_or(Millis(0))));
  }
};
ProgressLimits progress_limits(const StallOptions& options);

// "5 s", "300 ms".
std::string seconds_text(Millis span);

// A tensor that some ranks have submitted and others have not.
struct WaitingTensor {
  std::string name;
  TimePoint since;           // the first request arrived
  std::vector<int> missing;  // global ranks, ascending, not empty
};

struct StallVerdict {
  std::string warning{};   // empty: none
  std::string shutdown{};  // not empty: the job has to end, with this reason
  int rank = -1;           // the rank at fault; -1: none in particular
  int waits_for = -1;      // of a warning: the first of the ranks that are waited for
};

// Decides when to warn of tensors that some ranks wait for, and when to give up. Looks once per
// check time, and only while something is waiting. Owned by the coordinator, one per process set; pure: no log, no
// clock.
class StallInspector {
 public:
  explicit StallInspector(const StallOptions& options, std::int32_t process_set = kGlobalProcessSet)
      : options_(options), process_set_(process_set) {}

  // When the next look is due, given when the oldest waiting tensor arrived; nullopt: nothing waits, or disabled.
  std::optional<TimePoint> next_deadline(std::optional<TimePoint> oldest) const;
  // `waiting` in order of arrival. Requires: a look is due.
  StallVerdict look(const std::vector<WaitingTensor>& waiting, TimePoint now);

 private:
  StallOptions options_;
  std::int32_t process_set_;
  std::optional<TimePoint> last_look_;
};

inline constexpr std::size_t kStallNamesPerRank = 6;

}  // namespace hvd::negotiation
