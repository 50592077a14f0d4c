#include "runtime/transport/data/operations.h"

namespace hvd::transport {

void Completions::fail(const Status& why) {
  const MutexLock lock(mutex_);
  if (error_.is_ok()) error_ = why;
  failed_.store(true, std::memory_order_release);
}

bool Completions::any_pending() {
  const MutexLock lock(mutex_);
  return pending_.load(std::memory_order_relaxed) > 0;
}

void Completions::complete(Side side, int rank) {
  const MutexLock lock(mutex_);
  ranks_[side].push_back(rank);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  counts_[side].fetch_add(1, std::memory_order_release);
}

Result<int> Completions::take(Side side) {
  const MutexLock lock(mutex_);
  if (!error_.is_ok()) return error_;
  HVD_CHECK(!ranks_[side].empty(), "nothing to take");
  const int rank = ranks_[side].front();
  ranks_[side].pop_front();
  counts_[side].fetch_sub(1, std::memory_order_relaxed);
  return rank;
}

}  // namespace hvd::transport
