#include "runtime/base/event.h"

#include "runtime/base/futex.h"
#include "runtime/base/spinner.h"

namespace hvd {

void Event::set() {
  // After the exchange the waiter may already be gone with this object, so only the address is used.
  std::atomic<std::uint32_t>* word = &state_;
  if (state_.exchange(kSet, std::memory_order_acq_rel) == kSleeping) wake_all(word, FUTEX_PRIVATE_FLAG);
}

bool Event::wait_for(std::chrono::milliseconds limit) {
  if (thread_spinner().spin([this] { return is_set(); })) return true;
  std::uint32_t expected = kClear;
  state_.compare_exchange_strong(expected, kSleeping, std::memory_order_acq_rel);
  if (expected == kSet) return true;
  sleep_while(state_, kSleeping, FUTEX_PRIVATE_FLAG, limit);
  return is_set();
}

}  // namespace hvd
