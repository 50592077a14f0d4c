#pragma once

#include <cstdint>
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

// Ignored, so that a reader that went away and a file that may not grow are errors of write(), and a terminal that is
// another's an error of read(), and not our death or stop.
void ignore_io_signals();

// The signals that whoever started this program has it ignore, as bits (1 << number): nohup's SIGHUP, say. They are to
// stay ignored, in the launcher and for ranks. Not SIGCHLD, without which no exit of a child could be told.
std::uint64_t ignored_signals();
inline bool is_in(std::uint64_t signals, int signal) { return (signals >> signal & 1) != 0; }

}  // namespace hvd::launcher
