#pragma once

#include <functional>

#include "launcher/process/loop.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

// A one-shot timer. Loop-confined. The callback may start it again or destroy it.
class Timer {
 public:
  Timer(Loop& loop, std::function<void()> on_fire);
  // Replaces a start that has not fired yet.
  void start(Millis after);
  void stop();

 private:
  UvHandle<uv_timer_t> handle_;
  std::function<void()> on_fire_;
};

}  // namespace hvd::launcher
