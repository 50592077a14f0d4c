#include "runtime/collectives/cuda/device.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/engine/small_exchange.h"

namespace hvd {

bool Handle::done() const {
  if (!state_.event.is_set() && state_.small_use != nullptr) state_.small_use->look();
  return state_.event.is_set();
}
bool Handle::is_known_done() const { return state_.event.is_set(); }
bool Handle::wait_for(std::chrono::milliseconds limit) {
  if (done()) return true;
  state_.waiters.fetch_add(1, std::memory_order_relaxed);
  const TimePoint end = SteadyClock::now() + limit;
  if (state_.small_use != nullptr) state_.small_use->wait(limit);
  const bool goes_on = state_.small_use == nullptr || state_.small_use->look();
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now());
  const bool done = goes_on ? state_.event.wait_for(std::max(rest, std::chrono::milliseconds(0))) : false;
  state_.waiters.fetch_sub(1, std::memory_order_relaxed);
  return done;
}

const Status& Handle::status() const { return state_.status; }
const Shape& Handle::output_shape() const { return state_.output_shape; }
const std::vector<std::int64_t>& Handle::received_splits() const { return state_.received_splits; }
std::int64_t Handle::value() const { return state_.value; }

int Handle::unfinished_on() const { return state_.end == nullptr ? kCpuDevice : state_.end->device().ordinal(); }
Status Handle::order(void* stream) const {
  if (state_.failed_later.load(std::memory_order_acquire)) return state_.late_failure;
  return state_.end == nullptr ? Status::ok() : state_.end->hold_up(stream);
}
bool Handle::ends_with(const Handle& other) const { return state_.end == other.state_.end; }

}  // namespace hvd
