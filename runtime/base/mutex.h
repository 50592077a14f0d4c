#pragma once

#include <mutex>

#include "runtime/base/thread_annotations.h"

namespace hvd {

// std::mutex with the attributes that clang's thread-safety analysis needs: HVD_GUARDED_BY(mutex_) means nothing to it
// for a plain std::mutex (and is an error). For a std::condition_variable use native() with std::unique_lock, which the
// analysis does not follow.
class HVD_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() HVD_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  bool try_lock() HVD_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() HVD_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class HVD_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HVD_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() HVD_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace hvd
