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

 private:
  std::vector<UvHandle<uv_signal_t>> handles_;
  std::function<void(int)> on_signal_;
};

// Ignored, so that a reader that went away is an error of write() and not our death.
void ignore_sigpipe();

}  // namespace hvd::launcher
