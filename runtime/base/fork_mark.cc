#include "runtime/base/fork_mark.h"

#include <pthread.h>

#include <atomic>

namespace hvd {

namespace {

// A property of the process, which fork handlers can only reach by a static.
std::atomic<unsigned>& counter() {
  static std::atomic<unsigned> count{0};
  return count;
}

}  // namespace

unsigned ForkMark::forks() {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { counter().fetch_add(1, std::memory_order_relaxed); });
  return counter().load(std::memory_order_relaxed);
}

}  // namespace hvd
