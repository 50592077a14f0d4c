#include "launcher/process/input_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {

InputReader::InputReader(MainLoop& loop, int fd, Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      fd_(loop, fd, O_RDONLY, [this] { read_some(); }),
      retry_(loop.get(), [this] { read_some(); }),
      buffer_(kChunk) {}

void InputReader::allow(std::size_t bytes) {
  const bool idle = allowed_ == 0;
  allowed_ += bytes;
  // Not at once: the caller may be inside on_data.
  if (idle && allowed_ > 0 && !ended_) retry_.start(Millis(0));
}

void InputReader::read_some() {
  HVD_FAILPOINT("input.read");
  std::size_t taken = 0;
  while (allowed_ > 0 && !ended_) {
    // Who allows more in on_data would keep us here, and libuv a timer of 0 ms at its timers.
    if (taken >= kTurn) return retry_.start(Millis(1));
    pollfd ready = {.fd = fd_.fd(), .events = POLLIN, .revents = 0};
    const bool has_some = fd_.kind() == SharedFd::Kind::kFile || ::poll(&ready, 1, 0) > 0;
    const ssize_t n = has_some ? ::read(fd_.fd(), buffer_.data(), std::min(allowed_, kChunk)) : -1;
    const int error = has_some ? errno : EAGAIN;
    if (n > 0) {
      allowed_ -= static_cast<std::size_t>(n);
      taken += static_cast<std::size_t>(n);
      callbacks_.on_data({buffer_.data(), static_cast<std::size_t>(n)});
    } else if (n < 0 && error == EAGAIN) {
      if (!fd_.wait().is_ok()) end();
      return;
    } else if (n < 0 && error == EIO && ::isatty(fd_.fd()) == 1) {
      return retry_.start(kForegroundCheck);
    } else if (n == 0 || error != EINTR) {
      return end();
    }
  }
}

void InputReader::end() {
  close();
  callbacks_.on_end();
}

void InputReader::close() {
  ended_ = true;
  retry_.stop();
  fd_.close();
}

bool is_empty_input(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return true;
  return S_ISCHR(info.st_mode) && info.st_rdev == ::makedev(1, 3);  // /dev/null
}

}  // namespace hvd::launcher
