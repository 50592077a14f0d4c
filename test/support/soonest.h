#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "runtime/base/deadline.h"

namespace hvd::test {

// The shortest of up to three trials, which end with the first below the limit: a machine with other work delays some.
inline Millis soonest(Millis limit, const std::function<SteadyClock::duration()>& trial) {
  auto least = SteadyClock::duration::max();
  for (int i = 0; i < 3 && least >= limit; ++i) least = std::min(least, trial());
  return std::chrono::duration_cast<Millis>(least);
}

}  // namespace hvd::test
