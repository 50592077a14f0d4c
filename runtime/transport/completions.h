#pragma once

#include <atomic>
#include <deque>

#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace hvd::transport {

// What became of the operations of one buffer: which sends and receives are complete, or the error that ended them all.
// Owned by the buffer; thread-safe. Whoever completes an operation tells waiters afterwards (Progress::notify), and
// must not touch this object after the call that completed it: the waiter may have destroyed it.
class Completions {
 public:
  void begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void complete_send(int to_rank) HVD_EXCLUDES(mutex_) { complete(kSend, to_rank); }
  void complete_recv(int from_rank) HVD_EXCLUDES(mutex_) { complete(kRecv, from_rank); }
  // The first error stays. Operations that are still pending stay so until they are cancelled.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);

  bool send_ready() const { return ready(kSend); }
  bool recv_ready() const { return ready(kRecv); }
  // The rank of the oldest completed operation not taken yet, or the error. Requires: send_ready() / recv_ready().
  Result<int> take_send() HVD_EXCLUDES(mutex_) { return take(kSend); }
  Result<int> take_recv() HVD_EXCLUDES(mutex_) { return take(kRecv); }

  // Whether an operation is neither complete nor cancelled. Synchronises with the completing thread.
  bool any_pending() HVD_EXCLUDES(mutex_);
  void cancel_one() { pending_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  enum Side { kSend = 0, kRecv = 1 };
  void complete(Side side, int rank) HVD_EXCLUDES(mutex_);
  Result<int> take(Side side) HVD_EXCLUDES(mutex_);
  bool ready(Side side) const {
    return counts_[side].load(std::memory_order_acquire) > 0 || failed_.load(std::memory_order_acquire);
  }

  Mutex mutex_;
  std::deque<int> ranks_[2] HVD_GUARDED_BY(mutex_);  // of completed operations, oldest first
  Status error_ HVD_GUARDED_BY(mutex_);
  std::atomic<int> counts_[2]{};
  std::atomic<int> pending_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace hvd::transport
