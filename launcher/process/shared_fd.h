#pragma once

#include <functional>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// One of our stdin, stdout and stderr, which we share with who started us, made ready for a loop without a change of
// its flags: O_NONBLOCK, that libuv would set, the shell would see too. Loop-confined. It reads and writes nothing.
class SharedFd {
 public:
  enum class Kind {
    kClosed,
    kOwn,  // fd() is a second, non-blocking opening of the same pipe or terminal
    kSocket,
    kFile,   // never makes one wait
    kOther,  // once ready, fd() takes or gives a little without making one wait
  };

  // `access` is O_RDONLY or O_WRONLY; on_ready comes after each wait().
  SharedFd(MainLoop& loop, int fd, int access, std::function<void()> on_ready);

  Kind kind() const { return kind_; }
  int fd() const { return own_.valid() ? own_.get() : fd_; }
  // Not for files. Once on_ready has come, wait() again for the next.
  Status wait();
  bool waiting() const { return waiting_; }
  void close();

 private:
  Kind prepare(int access);

  MainLoop& loop_;
  int fd_;
  bool reads_;
  std::function<void()> on_ready_;
  Fd own_;
  Fd readiness_;  // an epoll descriptor that watches fd_, where the system grants no second opening
  Kind kind_;
  bool waiting_ = false;
  UvHandle<uv_poll_t> poll_;
};

// Whether two descriptors lead to the same file, pipe or terminal.
bool is_same_file(int a, int b);

}  // namespace hvd::launcher
