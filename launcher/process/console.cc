#include "launcher/process/console.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hvd::launcher {

Console::Console(MainLoop& loop, int fd, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), fd_(fd) {
  prepare(fd);
}

void Console::prepare(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    broken_ = true;  // closed by who started us: there is nobody to tell
    return;
  }
  is_socket_ = S_ISSOCK(info.st_mode);
  if (S_ISFIFO(info.st_mode) || ::isatty(fd) == 1) {
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    own_ = Fd(::open(self.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own_.valid()) {
      fd_ = own_.get();
      return;
    }
  }
  readiness_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event interest = {};
  interest.events = EPOLLOUT;
  is_file_ = ::epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd, &interest) != 0;  // EPERM: a file is always ready
}

void Console::write(std::string_view text) {
  if (broken_ || text.empty()) return;
  queue_.append(text);
  if (!waiting_) flush();
}

ssize_t Console::write_some() {
  const char* data = queue_.data() + at_;
  const std::size_t size = queued();
  if (is_file_ || own_.valid()) return ::write(fd_, data, size);
  if (is_socket_) return ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  // A pipe that polls writable takes PIPE_BUF bytes without making us wait.
  pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_, data, std::min<std::size_t>(size, PIPE_BUF));
}

void Console::flush() {
  while (queued() > 0) {
    const ssize_t n = write_some();
    if (n >= 0) {
      at_ += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_until_writable();
      return;
    } else if (errno != EINTR) {
      fail(errno);
      return;
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
  if (waiting_) return;
  if (!poll_) {
    const int watched = own_.valid() ? own_.get() : readiness_.get();
    const int rc = poll_.init(this, [&](uv_poll_t* raw) { return uv_poll_init(loop_.get(), raw, watched); });
    if (rc != 0) return fail(-rc);
  }
  waiting_ = true;
  const int events = own_.valid() ? UV_WRITABLE : UV_READABLE;  // an epoll descriptor is readable when it has news
  uv_poll_start(poll_.get(), events, [](uv_poll_t* raw, int, int) {
    auto* self = static_cast<Console*>(raw->data);
    if (self == nullptr) return;
    uv_poll_stop(raw);
    self->waiting_ = false;
    self->flush();
    if (!self->broken_ && self->callbacks_.on_progress) self->callbacks_.on_progress();
  });
}

void Console::fail(int error) {
  broken_ = true;
  queue_.clear();
  at_ = 0;
  poll_.reset();
  if (callbacks_.on_error) callbacks_.on_error(Status::from_errno("write", error));
}

}  // namespace hvd::launcher
