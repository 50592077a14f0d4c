#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/base/spinner.h"  // kSpinLimit: how long a wait polls

namespace hvd {

// A one-shot flag that threads can wait for. Thread-safe. set() may be called once; the setter must not touch the event
// afterwards (a waiter may destroy it).
class Event {
 public:
  bool is_set() const { return state_.load(std::memory_order_acquire) == kSet; }
  void set();
  // Polls for a moment (Spinner), then sleeps. Returns is_set(). Returns early when a signal handler ran in this
  // thread.
  bool wait_for(std::chrono::milliseconds limit);
  void wait() {
    while (!wait_for(std::chrono::milliseconds(60000))) {
    }
  }

 private:
  static constexpr std::uint32_t kClear = 0;
  static constexpr std::uint32_t kSleeping = 1;  // clear, and somebody sleeps: set() must wake
  static constexpr std::uint32_t kSet = 2;
  std::atomic<std::uint32_t> state_{kClear};
};

}  // namespace hvd
