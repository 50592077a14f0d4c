#include "python/src/interrupts.h"

#include <utility>

namespace hvd::python {

bool Interrupts::add(const std::shared_ptr<Interruptible>& wait) {
  std::lock_guard lock(mutex_);
  if (closed()) return false;
  waits_.emplace(wait.get(), wait);
  return true;
}

void Interrupts::remove(Interruptible* wait) {
  std::lock_guard lock(mutex_);
  waits_.erase(wait);
}

std::vector<std::shared_ptr<Interruptible>> Interrupts::close() {
  std::vector<std::shared_ptr<Interruptible>> now;
  std::lock_guard lock(mutex_);
  closed_.store(true, std::memory_order_release);
  for (const auto& [address, wait] : waits_) {
    if (auto alive = wait.lock()) now.push_back(std::move(alive));
  }
  return now;
}

void Interrupts::reopen() {
  std::lock_guard lock(mutex_);
  closed_.store(false, std::memory_order_release);
}

Interrupts& interrupts() {
  static auto* instance = new Interrupts;
  return *instance;
}

}  // namespace hvd::python
