#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/base/spinner.h"

namespace hvd {

// Many producers, one consumer thread that drains in order. Thread-safe. Unbounded by itself: its users bound what they
// put in (one entry per pending operation of the process). pop() polls for a moment before it sleeps (Spinner).
template <typename T>
class WorkQueue {
 public:
  void push(T item) {
    bool wake = false;
    {
      const MutexLock lock(mutex_);
      items_.push_back(std::move(item));
      size_.store(items_.size(), std::memory_order_release);
      wake = sleeping_;
    }
    if (wake) changed_.notify_one();
  }

  // The next item, or nothing once the queue is closed and empty. The analysis does not follow std::unique_lock.
  std::optional<T> pop() HVD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    thread_spinner().spin([this] { return size_.load(std::memory_order_acquire) > 0; });
    std::unique_lock lock(mutex_.native());
    sleeping_ = true;
    while (items_.empty() && !closed_) changed_.wait(lock);
    sleeping_ = false;
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    size_.store(items_.size(), std::memory_order_release);
    return item;
  }

  // After this, pop() drains what is left and then returns nothing.
  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_one();
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_ HVD_GUARDED_BY(mutex_);
  bool sleeping_ HVD_GUARDED_BY(mutex_) = false;
  bool closed_ HVD_GUARDED_BY(mutex_) = false;
  std::atomic<std::size_t> size_{0};
};

}  // namespace hvd
