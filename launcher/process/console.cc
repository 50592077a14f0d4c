#include "launcher/process/console.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hvd::launcher {

Console::Console(MainLoop& loop, int fd, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), fd_(loop, fd, O_WRONLY, [this] {
        flush();
        if (!broken_ && callbacks_.on_progress) callbacks_.on_progress();
      }) {
  broken_ = fd_.kind() == SharedFd::Kind::kClosed;  // no message could be shown
}

void Console::write(std::string_view text) {
  if (broken_ || text.empty()) return;
  if (cut_ && queue_.empty()) queue_ += '\n';
  queue_.append(text);
  if (!fd_.waiting()) flush();
}

ssize_t Console::write_some() {
  const char* data = queue_.data() + at_;
  const std::size_t size = queued();
  switch (fd_.kind()) {
    case SharedFd::Kind::kFile:
    case SharedFd::Kind::kOwn: return ::write(fd_.fd(), data, size);
    case SharedFd::Kind::kSocket: return ::send(fd_.fd(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    default: break;
  }
  // A pipe that polls writable takes PIPE_BUF bytes without making us wait.
  pollfd ready = {.fd = fd_.fd(), .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_.fd(), data, std::min<std::size_t>(size, PIPE_BUF));
}

void Console::flush() {
  while (queued() > 0) {
    const ssize_t n = write_some();
    if (n >= 0) {
      at_ += static_cast<std::size_t>(n);
      cut_ = cut_ && n == 0;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return wait_until_writable();
    } else if (errno != EINTR) {
      return fd_.kind() == SharedFd::Kind::kFile ? lose(errno) : fail(errno);
    }
  }
  queue_.clear();
  at_ = 0;
}

void Console::wait_until_writable() {
  if (at_ > queue_.size() / 2) {
    queue_.erase(0, at_);
    at_ = 0;
  }
  const Status status = fd_.wait();
  if (!status.is_ok()) fail(EIO);
}

void Console::fail(int error) {
  broken_ = true;
  queue_.clear();
  at_ = 0;
  fd_.close();
  if (callbacks_.on_gone) callbacks_.on_gone(Status::from_errno("write", error));
}

void Console::lose(int error) {
  const bool first = lost_bytes_ == 0;
  lost_bytes_ += queued();
  cut_ = cut_ || (at_ > 0 && queue_[at_ - 1] != '\n');
  queue_.clear();
  at_ = 0;
  if (first && callbacks_.on_loss) callbacks_.on_loss(Status::from_errno("write", error));
}

}  // namespace hvd::launcher
