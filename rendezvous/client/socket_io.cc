#include "rendezvous/client/socket_io.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>

namespace hvd::rendezvous {
namespace {

constexpr Millis kBusyPause{5};  // between attempts while an AF_UNIX listener's backlog is full

// "connection refused": as a cause inside a sentence.
std::string cause_of(int error) {
  std::string text = Status::from_errno("", error).message();
  text.erase(0, text.find_first_not_of(": "));
  if (!text.empty() && text.front() >= 'A' && text.front() <= 'Z')
    text.front() = static_cast<char>(text.front() - 'A' + 'a');
  return text;
}

// What a failed socket call means for the caller.
Status socket_error(std::string_view what, int error) {
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
    case ENOENT:
      return Status::peer_lost(cause_of(error));
    default:
      return Status::internal(std::string(what) + ": " + cause_of(error));
  }
}

int poll_timeout(const Deadline& deadline) {
  // One more, because remaining() rounds down and poll would otherwise spin for the last
  // millisecond.
  return static_cast<int>(std::min<Millis::rep>(deadline.remaining().count() + 1, INT_MAX));
}

// `failed` is the result of a connect() that has to be waited for.
Status finish_connect(const Fd& fd, const Deadline& deadline, int wake_fd) {
  HVD_RETURN_IF_ERROR(wait_for(fd.get(), POLLOUT, deadline, wake_fd));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? Status::ok() : socket_error("connect", error);
}

// Anybody can listen under an abstract name that is free.
Status check_peer(const Fd& fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Status::from_errno("SO_PEERCRED", errno);
  if (peer.uid == geteuid()) return Status::ok();
  return Status::precondition("the listener runs under uid " + std::to_string(peer.uid) +
                              ", this process under uid " + std::to_string(geteuid()));
}

}  // namespace

Status wait_for(int fd, short events, const Deadline& deadline, int wake_fd) {
  std::array<pollfd, 2> fds{{{.fd = fd, .events = events, .revents = 0},
                             {.fd = wake_fd, .events = POLLIN, .revents = 0}}};
  while (true) {
    const int ready = poll(fds.data(), fds.size(), poll_timeout(deadline));
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (ready > 0 && fds[1].revents != 0) return Status::aborted("cancelled");
    if (ready > 0 && fds[0].revents != 0) return Status::ok();
    if (deadline.expired()) return Status::timeout("no answer in time");
  }
}

Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                       int wake_fd) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;  // never asks a name server, so it cannot block
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status::invalid_argument("\"" + host + "\" is not a numeric IPv4 or IPv6 address");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return socket_error("connect", errno);
    HVD_RETURN_IF_ERROR(finish_connect(fd, deadline, wake_fd));
  }
  return fd;
}

Result<Fd> connect_abstract(const std::string& name, const Deadline& deadline, int wake_fd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof(address.sun_path) - 1) {
    return Status::invalid_argument("socket name \"" + name + "\" has " +
                                    std::to_string(name.size()) + " characters, not 1.." +
                                    std::to_string(sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno != EAGAIN) return socket_error("connect", errno);
    if (deadline.expired()) return Status::timeout("the listener is busy");
    const auto pause = Deadline::at(std::min(deadline.when(), SteadyClock::now() + kBusyPause));
    if (Status woken = wait_for(-1, 0, pause, wake_fd); woken.code() != StatusCode::kTimeout)
      return woken;
  }
  HVD_RETURN_IF_ERROR(check_peer(fd));
  return fd;
}

Status send_all(const Fd& fd, ByteSpan bytes, const Deadline& deadline, int wake_fd) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HVD_RETURN_IF_ERROR(wait_for(fd.get(), POLLOUT, deadline, wake_fd));
    } else if (errno != EINTR) {
      return socket_error("send", errno);
    }
  }
  return Status::ok();
}

Result<std::size_t> receive_some(const Fd& fd, std::span<std::uint8_t> into,
                                 const Deadline& deadline, int wake_fd) {
  while (true) {
    HVD_RETURN_IF_ERROR(wait_for(fd.get(), POLLIN, deadline, wake_fd));
    const ssize_t size = recv(fd.get(), into.data(), into.size(), 0);
    if (size > 0) return static_cast<std::size_t>(size);
    if (size == 0) return Status::peer_lost("connection closed by the other end");
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      return socket_error("receive", errno);
  }
}

}  // namespace hvd::rendezvous
