#pragma once

#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"
#include "runtime/transport/progress.h"

namespace hvd::transport {

// Lets hvd-net drive the data sockets while no thread waits for them, without waking it for messages that a waiting
// thread reads itself: once it finds a waiter driving it stops watching, and looks again kPause after the last waiter
// left. Loop-confined to hvd-net; outlived by the Progress.
class NetWatch {
 public:
  static constexpr Millis kPause{2};

  NetWatch(uv_loop_t* loop, Progress& progress);

  // The last driver left (posted here by Progress's owner).
  void on_driver_left();

 private:
  void on_readable();
  void look_again();

  Progress& progress_;
  loop::Poll poll_;
  loop::Timer timer_;
};

}  // namespace hvd::transport
