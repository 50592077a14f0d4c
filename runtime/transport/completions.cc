#include "runtime/transport/completions.h"

namespace hvd::transport {

void Completions::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (error_.is_ok()) error_ = why;
  failed_.store(true, std::memory_order_release);
}

bool Completions::any_pending() {
  const std::lock_guard lock(mutex_);
  return pending_.load(std::memory_order_relaxed) > 0;
}

void Completions::complete(std::deque<int>& ranks, std::atomic<int>& count, int rank) {
  const std::lock_guard lock(mutex_);
  ranks.push_back(rank);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_release);
}

Result<int> Completions::take(std::deque<int>& ranks, std::atomic<int>& count) {
  const std::lock_guard lock(mutex_);
  if (!error_.is_ok()) return error_;
  HVD_CHECK(!ranks.empty(), "nothing to take");
  const int rank = ranks.front();
  ranks.pop_front();
  count.fetch_sub(1, std::memory_order_relaxed);
  return rank;
}

}  // namespace hvd::transport
