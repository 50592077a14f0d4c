#pragma once

#include <functional>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"

namespace hvd::launcher {

// Tells of signals on the loop instead of in a handler. Loop-confined; lives as long as the job, and does not keep the
// loop running.
class SignalWatcher {
 public:
  SignalWatcher(MainLoop& loop, const std::vector<int>& signals, std::function<void(int)> on_signal);

  // Does to us what the signal does to a program that does not watch it; for one that stops, returns when we go on.
  // Requires: the signal is watched.
  void take_default_action(int signal);

 private:
  struct Watched {
    int signal;
    UvHandle<uv_signal_t> handle;
  };
  int start(const Watched& watched);

  std::vector<Watched> watched_;
  std::function<void(int)> on_signal_;
};

}  // namespace hvd::launcher
