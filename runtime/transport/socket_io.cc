#include "runtime/transport/socket_io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

namespace hvd::transport {
namespace {

Status set_option(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) return Status::from_errno(name, errno);
  return Status::ok();
}

int poll_timeout(Deadline deadline) {
  const auto left = deadline.remaining().count();
  return left >= INT_MAX ? INT_MAX : static_cast<int>(left) + 1;  // a rounded-down 0 would poll in a busy loop
}

Status peer_lost(int err) { return Status::peer_lost(std::generic_category().message(err)); }

}  // namespace

Status configure_stream(int fd, Liveness liveness) {
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  // A quiet host is asked after 3 s, then every second; three missing answers end the connection (kPeerSilence).
  HVD_RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 3, "TCP_KEEPIDLE"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"));
  HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  if (liveness == Liveness::kControl) {
    const int silence = static_cast<int>(kPeerSilence.count());
    HVD_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence, "TCP_USER_TIMEOUT"));
  }
  return Status::ok();
}

Cancel::Cancel() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  HVD_CHECK(event_.valid(), "eventfd");
}

void Cancel::cancel() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof(one));  // never read: it stays readable
}

bool Cancel::cancelled() const {
  pollfd entry{event_.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

Status wait_for_socket(int fd, short events, Deadline deadline, const Cancel& cancel) {
  for (;;) {
    pollfd entries[2] = {{fd, events, 0}, {cancel.fd(), POLLIN, 0}};
    const int n = poll(entries, 2, poll_timeout(deadline));
    if (n < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (n > 0 && entries[1].revents != 0) return Status::aborted("the wait was ended");
    if (n > 0 && entries[0].revents != 0) return Status::ok();
    if (deadline.expired()) return Status::timeout("no answer in time");
  }
}

Result<ForkFd> connect_stream(const SocketAddress& to, Deadline deadline, const Cancel& cancel) {
  ForkFd fd = ForkFd::make(
      [&] { return socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  const socklen_t size = to.to_sockaddr(raw);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) != 0) {
    if (errno != EINPROGRESS) return peer_lost(errno);
    HVD_RETURN_IF_ERROR(wait_for_socket(fd.get(), POLLOUT, deadline, cancel));
    int err = 0;
    socklen_t err_size = sizeof(err);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &err, &err_size) != 0) err = errno;
    if (err != 0) return peer_lost(err);
  }
  return fd;
}

Status send_all(int fd, const void* data, std::size_t size, Deadline deadline, const Cancel& cancel) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      at += n;
      size -= static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(wait_for_socket(fd, POLLOUT, deadline, cancel));
    } else if (errno != EINTR) {
      return peer_lost(errno);
    }
  }
  return Status::ok();
}

Status receive_exactly(int fd, void* data, std::size_t size, Deadline deadline, const Cancel& cancel) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = recv(fd, at, size, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Status::peer_lost("the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(wait_for_socket(fd, POLLIN, deadline, cancel));
    } else if (errno != EINTR) {
      return peer_lost(errno);
    }
  }
  return Status::ok();
}

}  // namespace hvd::transport
