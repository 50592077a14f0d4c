#include "runtime/collectives/launch_order.h"

#include <utility>

namespace hvd::collectives {

std::shared_ptr<LaunchTurn> LaunchOrder::next() {
  const std::lock_guard lock(mutex_);
  open_.insert(++given_);
  return std::make_shared<LaunchTurn>(shared_from_this(), given_);
}

void LaunchTurn::wait() {
  std::unique_lock lock(order_->mutex_);
  while (!order_->open_.empty() && *order_->open_.begin() < number_) order_->changed_.wait(lock);
}

void LaunchTurn::pass() {
  {
    const std::lock_guard lock(order_->mutex_);
    if (order_->open_.erase(number_) == 0) return;
  }
  order_->changed_.notify_all();
}

std::shared_ptr<cuda::Event> LaunchTurn::before(int device, const void* stream) const {
  const std::lock_guard lock(order_->mutex_);
  const auto last = order_->last_.find(device);
  return last == order_->last_.end() || last->second.stream == stream ? nullptr : last->second.end;
}

void LaunchTurn::ends(int device, const void* stream, std::shared_ptr<cuda::Event> end) {
  const std::lock_guard lock(order_->mutex_);
  order_->last_[device] = {stream, std::move(end)};
}

}  // namespace hvd::collectives
