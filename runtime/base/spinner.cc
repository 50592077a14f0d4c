#include "runtime/base/spinner.h"

#include <sched.h>

#include <algorithm>

namespace hvd {

bool yield_kept_processor() {
  const TimePoint before = SteadyClock::now();
  ::sched_yield();
  return SteadyClock::now() - before < 4 * kSpinLimit;
}

bool Spinner::yield_once() {
  if (yield_kept_processor()) return true;
  penalty_ = std::min(kMaxPenalty, std::max<std::uint32_t>(penalty_ * 2, 8));
  skip_ = penalty_;
  return false;
}

Spinner& thread_spinner() {
  thread_local Spinner spinner;
  return spinner;
}

}  // namespace hvd
