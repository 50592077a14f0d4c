#include "launcher/process/shared_fd.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace hvd::launcher {

SharedFd::SharedFd(MainLoop& loop, int fd, int access, std::function<void()> on_ready)
    : loop_(loop), fd_(fd), reads_(access == O_RDONLY), on_ready_(std::move(on_ready)), kind_(prepare(access)) {}

SharedFd::Kind SharedFd::prepare(int access) {
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) return Kind::kClosed;  // by who started us
  if (S_ISFIFO(info.st_mode) || ::isatty(fd_) == 1) {
    const std::string self = "/proc/self/fd/" + std::to_string(fd_);
    own_ = Fd(::open(self.c_str(), access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own_.valid()) return Kind::kOwn;
  }
  readiness_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event interest = {};
  interest.events = reads_ ? EPOLLIN : EPOLLOUT;
  if (::epoll_ctl(readiness_.get(), EPOLL_CTL_ADD, fd_, &interest) != 0) return Kind::kFile;  // EPERM: always ready
  return S_ISSOCK(info.st_mode) ? Kind::kSocket : Kind::kOther;
}

Status SharedFd::wait() {
  if (waiting_) return Status::ok();
  if (!poll_) {
    const int watched = own_.valid() ? own_.get() : readiness_.get();
    const int rc = poll_.init(this, [&](uv_poll_t* raw) { return uv_poll_init(loop_.get(), raw, watched); });
    if (rc != 0) return Status::from_errno("poll", -rc);
  }
  waiting_ = true;
  const int events = own_.valid() && !reads_ ? UV_WRITABLE : UV_READABLE;  // epoll is readable when it has news
  uv_poll_start(poll_.get(), events, [](uv_poll_t* raw, int, int) {
    auto* self = static_cast<SharedFd*>(raw->data);
    if (self == nullptr) return;
    uv_poll_stop(raw);
    self->waiting_ = false;
    self->on_ready_();
  });
  return Status::ok();
}

void SharedFd::close() {
  waiting_ = false;
  poll_.reset();
}

bool is_same_file(int a, int b) {
  struct stat one = {};
  struct stat other = {};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace hvd::launcher
