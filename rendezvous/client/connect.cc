#include "rendezvous/client/connect.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {
namespace {

constexpr Millis kBusyPause{5};  // between attempts while an AF_UNIX listener's backlog is full

// Anybody can listen under an abstract name that is free.
Status check_peer(const Fd& fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Status::from_errno("SO_PEERCRED", errno);
  if (peer.uid == geteuid()) return Status::ok();
  return Status::precondition("the listener runs under uid " + std::to_string(peer.uid) + ", this process under uid " +
                              std::to_string(geteuid()));
}

}  // namespace

Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline, int wake_fd) {
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
  HVD_RETURN_IF_ERROR(connect_socket(fd.get(), found->ai_addr, found->ai_addrlen, deadline, wake_fd));
  return fd;
}

Result<Fd> connect_abstract(const std::string& name, const Deadline& deadline, int wake_fd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof(address.sun_path) - 1) {
    return Status::invalid_argument("socket name \"" + name + "\" has " + std::to_string(name.size()) +
                                    " characters, not 1.." + std::to_string(sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno != EAGAIN) return socket_error("connect", errno);
    if (deadline.expired()) return Status::timeout("the listener is busy");
    const auto pause = Deadline::at(std::min(deadline.when(), SteadyClock::now() + kBusyPause));
    if (Status woken = wait_for_socket(-1, 0, pause, wake_fd); woken.code() != StatusCode::kTimeout) return woken;
  }
  HVD_RETURN_IF_ERROR(check_peer(fd));
  return fd;
}

}  // namespace hvd::rendezvous
