#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

#include "runtime/base/event.h"

namespace hvd::transport {

// How long a waiting thread polls before it sleeps: kSpinLimit, yielding after every look, unless a yield has shown that
// others want this core. Then a yield costs a time slice (4 ms was measured beside a compiler), while a sleeper is
// scheduled soon after it is woken; so nobody spins for a while. Thread-safe.
class SpinPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kLongYield{200};
  static constexpr std::chrono::milliseconds kQuiet{100};

  // Until when a spin that starts now may go on.
  Clock::time_point spin_until() const {
    const auto now = Clock::now();
    return now.time_since_epoch().count() < quiet_until_.load(std::memory_order_relaxed) ? now : now + kSpinLimit;
  }
  // Lets others run. False when the spin should end.
  bool yield() {
    const auto before = Clock::now();
    sched_yield();
    const auto after = Clock::now();
    if (after - before < kLongYield) return true;
    quiet_until_.store((after + kQuiet).time_since_epoch().count(), std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<Clock::rep> quiet_until_{0};
};

}  // namespace hvd::transport
