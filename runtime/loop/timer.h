#pragma once

#include <uv.h>

#include <functional>

#include "runtime/base/deadline.h"
#include "runtime/base/thread.h"

namespace hvd::loop {

// A timer on a libuv loop. Loop-confined: made, started, stopped and destroyed on the loop's thread, or destroyed after
// the loop has ended. The callback may destroy the timer.
class Timer {
 public:
  Timer(uv_loop_t* loop, std::function<void()> callback);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Fires once after `delay`, replacing what was scheduled before.
  void start(Millis delay);
  // Fires every `period`.
  void start_repeating(Millis period);
  void stop();
  bool active() const;

 private:
  void check_thread() const;

  struct State {
    uv_timer_t handle;
    std::function<void()> callback;
    ThreadChecker thread;
  };
  State* state_;  // belongs to libuv once closed: it may still be linked into the loop
};

}  // namespace hvd::loop
