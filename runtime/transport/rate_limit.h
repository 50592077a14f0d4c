#pragma once

#include <cstdint>

#include "runtime/base/deadline.h"

namespace hvd::transport {

// Lets one event through in each period and counts the others. Externally synchronised.
class RateLimit {
 public:
  explicit RateLimit(Millis period) : period_(period) {}

  // Whether to report this event now; `suppressed()` then tells how many were not since the last one.
  bool allow(TimePoint now) {
    if (any_ && now - last_ < period_) {
      ++pending_;
      return false;
    }
    any_ = true;
    last_ = now;
    suppressed_ = pending_;
    pending_ = 0;
    return true;
  }
  std::uint64_t suppressed() const { return suppressed_; }

 private:
  Millis period_;
  bool any_ = false;
  TimePoint last_{};
  std::uint64_t pending_ = 0;
  std::uint64_t suppressed_ = 0;
};

}  // namespace hvd::transport
