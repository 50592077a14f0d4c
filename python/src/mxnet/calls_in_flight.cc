#include "python/src/mxnet/calls_in_flight.h"

namespace hvd::mxnet {

void CallsInFlight::check_fork() {
  if (owner_.same_process()) return;
  count_ = 0;
  owner_ = ForkMark();
}

void CallsInFlight::add() {
  std::lock_guard lock(mutex_);
  check_fork();
  ++count_;
}

void CallsInFlight::remove() {
  std::lock_guard lock(mutex_);
  check_fork();
  ++ended_;
  if (count_ > 0 && --count_ == 0) changed_.notify_all();
}

bool CallsInFlight::wait_for_none(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  check_fork();
  return changed_.wait_for(lock, limit, [this] { return count_ == 0; });
}

std::int64_t CallsInFlight::ended() {
  std::lock_guard lock(mutex_);
  return ended_;
}

CallsInFlight& calls_in_flight() {
  static auto* instance = new CallsInFlight;
  return *instance;
}

}  // namespace hvd::mxnet
