#include "runtime/base/socket_io.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string>

#include "runtime/base/failpoint.h"

namespace hvd {
namespace {

constexpr Millis kBusyPause{5};  // between attempts while a listener's backlog is full

// "connection refused": as a cause inside a sentence.
std::string cause_of(int error) {
  std::string text = Status::from_errno("", error).message();
  text.erase(0, text.find_first_not_of(": "));
  if (!text.empty() && text.front() >= 'A' && text.front() <= 'Z') {
    text.front() = static_cast<char>(text.front() - 'A' + 'a');
  }
  return text;
}

int poll_timeout(const Deadline& deadline) {
  // One more, because remaining() rounds down and poll would otherwise spin for the last millisecond.
  return static_cast<int>(std::min<Millis::rep>(deadline.remaining().count() + 1, INT_MAX));
}

}  // namespace

Status socket_error(std::string_view call, int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ETIMEDOUT:
    case ENOENT: return Status::peer_lost(cause_of(error));
    default: return Status::internal(std::string(call) + ": " + cause_of(error));
  }
}

Status wait_for_socket(int fd, short events, const Deadline& deadline, int wake_fd) {
  std::array<pollfd, 2> fds{
      {{.fd = fd, .events = events, .revents = 0}, {.fd = wake_fd, .events = POLLIN, .revents = 0}}};
  for (;;) {
    const int ready = ::poll(fds.data(), fds.size(), poll_timeout(deadline));
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (ready > 0 && fds[1].revents != 0) return Status::aborted("the wait was ended");
    if (ready > 0 && fds[0].revents != 0) return Status::ok();
    if (deadline.expired()) return Status::timeout("no answer in time");
  }
}

Status pause_for(Millis span, const Deadline& deadline, int wake_fd) {
  const auto until = Deadline::at(std::min(deadline.when(), SteadyClock::now() + span));
  const Status woken = wait_for_socket(-1, 0, until, wake_fd);
  return woken.code() == StatusCode::kTimeout ? Status::ok() : woken;
}

Status connect_socket(int fd, const sockaddr* address, socklen_t size, const Deadline& deadline, int wake_fd) {
  if (HVD_FAILPOINT_CALL("socket.connect", ::connect(fd, address, size)) == 0) return Status::ok();
  if (errno != EINPROGRESS) return socket_error("connect", errno);
  HVD_RETURN_IF_ERROR(wait_for_socket(fd, POLLOUT, deadline, wake_fd));
  int error = 0;
  socklen_t error_size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) error = errno;
  return error == 0 ? Status::ok() : socket_error("connect", error);
}

Status send_all(int fd, ByteSpan bytes, const Deadline& deadline, int wake_fd) {
  while (!bytes.empty()) {
    std::size_t size = bytes.size();
    const ssize_t sent =
        HVD_FAILPOINT_IO("socket.send", size, ::send(fd, bytes.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(wait_for_socket(fd, POLLOUT, deadline, wake_fd));
    } else if (errno != EINTR) {
      return socket_error("send", errno);
    }
  }
  return Status::ok();
}

Result<std::size_t> receive_some(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd) {
  for (;;) {
    HVD_RETURN_IF_ERROR(wait_for_socket(fd, POLLIN, deadline, wake_fd));
    std::size_t room = into.size();
    const ssize_t size = HVD_FAILPOINT_IO("socket.receive", room, ::recv(fd, into.data(), room, MSG_DONTWAIT));
    if (size > 0) return static_cast<std::size_t>(size);
    if (size == 0) return Status::peer_lost("connection closed by the other end");
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return socket_error("receive", errno);
  }
}

Status receive_exactly(int fd, std::span<std::uint8_t> into, const Deadline& deadline, int wake_fd) {
  while (!into.empty()) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size, receive_some(fd, into, deadline, wake_fd));
    into = into.subspan(size);
  }
  return Status::ok();
}

AbstractAddress::AbstractAddress(std::string_view name) {
  name = name.substr(0, kMaxName);
  address_.sun_family = AF_UNIX;
  std::memcpy(address_.sun_path + 1, name.data(), name.size());  // the leading NUL makes it abstract
  size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Result<Fd> connect_to(const AbstractAddress& address, const Deadline& deadline, int wake_fd) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  while (::connect(fd.get(), address.get(), address.size()) != 0) {
    if (errno != EAGAIN) return socket_error("connect", errno);
    if (deadline.expired()) return Status::timeout("the listener is busy");
    HVD_RETURN_IF_ERROR(pause_for(kBusyPause, deadline, wake_fd));
  }
  return fd;
}

Result<ucred> peer_credentials(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Status::from_errno("SO_PEERCRED", errno);
  return peer;
}

bool is_of_own_user(int fd) {
  const Result<ucred> peer = peer_credentials(fd);
  return peer.is_ok() && peer.value().uid == ::geteuid();
}

std::string PortRange::to_string() const {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

std::vector<std::uint16_t> PortRange::candidates(int attempts) const {
  if (is_any()) return std::vector<std::uint16_t>(static_cast<std::size_t>(attempts), 0);
  const std::uint32_t count = std::uint32_t{last} - first + 1;
  const std::uint32_t start = static_cast<std::uint32_t>(getpid()) * 2'654'435'761U % count;  // neighbours lie apart
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < count; ++i) ports.push_back(static_cast<std::uint16_t>(first + (start + i) % count));
  return ports;
}

}  // namespace hvd
