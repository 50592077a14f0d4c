#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "runtime/base/fork_mark.h"

namespace hvd::mxnet {

// How many operations the engine has been given that have not ended. Thread-safe, one per process, never destroyed:
// the engine may end one while static destructors run. A forked child has none of its parent's.
class CallsInFlight {
 public:
  void add();
  void remove();
  // Whether there are none, at once or within `limit`.
  bool wait_for_none(std::chrono::milliseconds limit);
  // How many have ended; grows while there is progress.
  std::int64_t ended();

 private:
  void check_fork();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t count_ = 0;
  std::int64_t ended_ = 0;
  ForkMark owner_;
};

CallsInFlight& calls_in_flight();

}  // namespace hvd::mxnet
