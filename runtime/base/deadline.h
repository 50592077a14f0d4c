#pragma once

#include <algorithm>
#include <chrono>

namespace hvd {

using SteadyClock = std::chrono::steady_clock;
using TimePoint = SteadyClock::time_point;
using Millis = std::chrono::milliseconds;

// A moment after which waiting for a machine ends. Immutable.
class Deadline {
 public:
  static Deadline after(Millis span) { return Deadline(SteadyClock::now() + span); }
  static Deadline at(TimePoint when) { return Deadline(when); }
  TimePoint when() const { return when_; }
  bool expired() const { return SteadyClock::now() >= when_; }
  // Never negative.
  Millis remaining() const {
    return std::max(Millis(0), std::chrono::duration_cast<Millis>(when_ - SteadyClock::now()));
  }

 private:
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when_;
};

}  // namespace hvd
