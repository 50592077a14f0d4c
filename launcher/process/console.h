#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/process/main_loop.h"
#include "launcher/process/shared_fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// Writes to our stdout or stderr without ever making the loop wait. Loop-confined. It queues without a bound of its
// own: the owner looks at queued() and stops what feeds it.
class Console {
 public:
  struct Callbacks {
    std::function<void()> on_progress;    // queued() went down after having been above zero
    std::function<void(Status)> on_gone;  // once: nobody reads any more; later writes are dropped
    std::function<void(Status)> on_loss;  // once: a file took no more (a full disk); what comes later is tried again
  };

  Console(MainLoop& loop, int fd, Callbacks callbacks);

  void write(std::string_view text);
  std::size_t queued() const { return queue_.size() - at_; }
  // What could not be written to a file.
  std::uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  void flush();
  ssize_t write_some();
  void wait_until_writable();
  void fail(int error);
  void lose(int error);

  Callbacks callbacks_;
  SharedFd fd_;
  bool broken_ = false;
  bool cut_ = false;  // the file ends with a part of a line
  std::uint64_t lost_bytes_ = 0;
  std::string queue_;
  std::size_t at_ = 0;  // what is written of queue_
};

}  // namespace hvd::launcher
