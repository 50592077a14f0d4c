#include "runtime/base/event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "runtime/base/spinner.h"

namespace hvd {

namespace {

std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a plain 32-bit word");
  return reinterpret_cast<std::uint32_t*>(&word);
}

}  // namespace

void Event::set() {
  // After the exchange the waiter may already be gone with this object, so only the address is used, as futexes allow.
  std::uint32_t* word = futex_word(state_);
  if (state_.exchange(kSet, std::memory_order_acq_rel) == kSleeping) {
    ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool Event::wait_for(std::chrono::milliseconds limit) {
  if (thread_spinner().spin([this] { return is_set(); })) return true;
  std::uint32_t expected = kClear;
  state_.compare_exchange_strong(expected, kSleeping, std::memory_order_acq_rel);
  if (expected == kSet) return true;
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(limit.count() / 1000);
  timeout.tv_nsec = static_cast<long>(limit.count() % 1000) * 1000000;
  ::syscall(SYS_futex, futex_word(state_), FUTEX_WAIT_PRIVATE, kSleeping, &timeout, nullptr, 0);
  return is_set();
}

}  // namespace hvd
