#pragma once

#include <uv.h>

#include <functional>

#include "runtime/base/thread.h"

namespace hvd::loop {

// Watches one non-blocking file descriptor on a libuv loop. Loop-confined like Timer. Does not own the descriptor,
// which must stay open until the watch is destroyed. The callback may destroy the watch.
class Poll {
 public:
  // `callback(readable, writable)`: errors and hang-ups count as both, so that the next read or write reports them.
  Poll(uv_loop_t* loop, int fd, std::function<void(bool readable, bool writable)> callback);
  ~Poll();
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

  // What to be told about; nothing at all stops the watch.
  void watch(bool readable, bool writable);

 private:
  void check_thread() const;

  struct State {
    uv_poll_t handle;
    std::function<void(bool, bool)> callback;
    int events;
    ThreadChecker thread;
  };
  State* state_;
};

}  // namespace hvd::loop
