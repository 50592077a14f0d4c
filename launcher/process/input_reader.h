#pragma once

#include <cstdint>
#include <functional>

#include "launcher/process/main_loop.h"
#include "launcher/process/shared_fd.h"
#include "runtime/base/bytes.h"
#include "runtime/base/wipe.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Reads our stdin as it comes, and only as much as it was allowed to: the rest stays for whoever is next. A terminal
// that is another's at the moment (we run in the background) is tried again until it is ours. Loop-confined. Requires:
// SIGTTIN is ignored, or that terminal would stop us.
class InputReader {
 public:
  struct Callbacks {
    std::function<void(ByteSpan)> on_data;
    std::function<void()> on_end;  // once; an error is an end as well
  };

  InputReader(MainLoop& loop, int fd, Callbacks callbacks);

  // So many bytes more. Nothing is read before the first call.
  void allow(std::size_t bytes);
  void close();

 private:
  static constexpr std::size_t kChunk = std::size_t{64} * 1024;
  static constexpr std::size_t kTurn = 16 * kChunk;  // before the loop has other work done
  static constexpr Millis kForegroundCheck{300};

  void read_some();
  void end();

  Callbacks callbacks_;
  SharedFd fd_;
  loop::Timer retry_;
  WipedBytes buffer_;  // what users type or pipe in may be a secret
  std::size_t allowed_ = 0;
  bool ended_ = false;
};

// "/dev/null" on descriptor `fd`, or nothing at all: there is no input.
bool is_empty_input(int fd);

}  // namespace hvd::launcher
