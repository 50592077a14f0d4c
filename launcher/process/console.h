#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// Writes to a descriptor that we share with others (our stdout or stderr) without ever blocking the loop and without
// changing its O_NONBLOCK flag, which the shell that started us would see too. Loop-confined. It queues without a bound of
// its own: the owner looks at queued() and stops what feeds it.
class Console {
 public:
  struct Callbacks {
    std::function<void()> on_progress;     // queued() went down after having been above zero
    std::function<void(Status)> on_error;  // once: nobody reads any more; later writes are dropped
  };

  Console(MainLoop& loop, int fd, Callbacks callbacks);

  void write(std::string_view text);
  std::size_t queued() const { return queue_.size() - at_; }
  bool broken() const { return broken_; }

 private:
  void prepare(int fd);
  void flush();
  ssize_t write_some();
  void wait_until_writable();
  void fail(int error);

  MainLoop& loop_;
  Callbacks callbacks_;
  int fd_;          // what we write to
  Fd own_;          // a second, non-blocking opening of the same pipe or terminal, where the system grants one
  Fd readiness_;    // an epoll descriptor that watches fd_, where there is no own_
  bool is_file_ = false;    // never makes a writer wait
  bool is_socket_ = false;
  bool waiting_ = false;
  bool broken_ = false;
  std::string queue_;
  std::size_t at_ = 0;  // what is written of queue_
  UvHandle<uv_poll_t> poll_;
};

}  // namespace hvd::launcher
