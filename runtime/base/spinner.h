#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/base/deadline.h"

namespace hvd {

// The longest time a waiting thread may poll before it sleeps. A wake-up costs about 40 µs on a virtual machine;
// polling a little longer than that pays for short waits.
inline constexpr std::chrono::microseconds kSpinLimit{50};

// Lets others run. False when the processor was away for much longer than a poll takes: for a time slice, 4 ms beside a
// compiler.
bool yield_kept_processor();

// Decides whether a thread polls at all. Polling yields, so that it is harmless when there are more threads than cores;
// but a yield to a thread that computes gives a whole time slice away, milliseconds, while a sleeper would be woken at
// once. So whoever loses much time in a yield sleeps right away the next times, twice as often after each such loss.
// One per thread (thread_spinner), confined to it.
class Spinner {
 public:
  // Polls `ready` until it is true or the limit has passed. Returns the last answer.
  template <typename Ready>
  bool spin(Ready&& ready) {
    if (ready()) return true;
    if (skip_ > 0) {
      --skip_;
      return false;
    }
    const TimePoint end = SteadyClock::now() + kSpinLimit;
    for (;;) {
      const bool kept_cpu = yield_once();
      if (ready()) {
        if (kept_cpu) penalty_ = penalty_ / 2;
        return true;
      }
      if (!kept_cpu || SteadyClock::now() >= end) return false;
    }
  }

 private:
  bool yield_once();

  static constexpr std::uint32_t kMaxPenalty = 1024;
  std::uint32_t penalty_ = 0;  // how many waits the last loss cost
  std::uint32_t skip_ = 0;     // waits that still go without polling
};

Spinner& thread_spinner();

// The same for threads that wait for one thing together, and that go on polling as long as there is something to do:
// who loses much time in a yield keeps all of them from polling for kQuiet. By time, because such a wait may be one in
// a second or thousands. Thread-safe.
class SharedSpinner {
 public:
  static constexpr std::chrono::milliseconds kQuiet{100};

  // Until when polling that starts now may go on.
  TimePoint spin_until() const {
    const TimePoint now = SteadyClock::now();
    return now.time_since_epoch().count() < quiet_until_.load(std::memory_order_relaxed) ? now : now + kSpinLimit;
  }
  // Lets others run. False when the polling should end.
  bool yield() {
    if (yield_kept_processor()) return true;
    quiet_until_.store((SteadyClock::now() + kQuiet).time_since_epoch().count(), std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<SteadyClock::rep> quiet_until_{0};
};

}  // namespace hvd
