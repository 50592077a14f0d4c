#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/base/thread_annotations.h"

namespace hvd::transport {

// What became of the operations of one buffer: which sends and receives are complete, or the error that ended them all.
// Owned by the buffer; thread-safe. Whoever completes an operation tells waiters afterwards (Progress::notify), and must
// not touch this object after the call that completed it: the waiter may have destroyed it.
class Completions {
 public:
  void begin() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void complete_send(int to_rank) HVD_EXCLUDES(mutex_) { complete(sent_, sent_count_, to_rank); }
  void complete_recv(int from_rank) HVD_EXCLUDES(mutex_) { complete(received_, received_count_, from_rank); }
  // The first error stays. Operations that are still pending stay so until they are cancelled.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);

  bool send_ready() const { return ready(sent_count_); }
  bool recv_ready() const { return ready(received_count_); }
  // The rank of the oldest completed operation not taken yet, or the error. Requires: send_ready() / recv_ready().
  Result<int> take_send() HVD_EXCLUDES(mutex_) { return take(sent_, sent_count_); }
  Result<int> take_recv() HVD_EXCLUDES(mutex_) { return take(received_, received_count_); }

  // Whether an operation is neither complete nor cancelled. Synchronises with the completing thread.
  bool any_pending() HVD_EXCLUDES(mutex_);
  void cancel_one() { pending_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void complete(std::deque<int>& ranks, std::atomic<int>& count, int rank);
  Result<int> take(std::deque<int>& ranks, std::atomic<int>& count);
  bool ready(const std::atomic<int>& count) const {
    return count.load(std::memory_order_acquire) > 0 || failed_.load(std::memory_order_acquire);
  }

  std::mutex mutex_;
  std::deque<int> sent_ HVD_GUARDED_BY(mutex_);
  std::deque<int> received_ HVD_GUARDED_BY(mutex_);
  Status error_ HVD_GUARDED_BY(mutex_);
  std::atomic<int> sent_count_{0};
  std::atomic<int> received_count_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace hvd::transport
