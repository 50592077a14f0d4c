#include "runtime/transport/listen_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace hvd::transport {
namespace {

constexpr int kPortAttempts = 20;

// On failure `err` has the error number.
Result<ForkFd> bind_one(const SocketAddress& address, int& err) {
  ForkFd fd =
      ForkFd::make([&] { return socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  const socklen_t size = address.to_sockaddr(raw);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) != 0) {
    err = errno;
    return Status::from_errno("cannot listen on " + address.to_string(), err);
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return Status::from_errno("listen on " + address.to_string(), errno);
  return fd;
}

Result<std::uint16_t> bound_port(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof(raw);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return Status::from_errno("getsockname", errno);
  HVD_ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw)));
  return address.port();
}

}  // namespace

Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses) {
  if (addresses.empty()) return Status::precondition("there is no network address to listen on");
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    BoundSockets bound;
    std::uint16_t port = 0;
    for (const InterfaceAddress& wanted : addresses) {
      SocketAddress address = wanted.address;
      address.set_port(port);
      int err = 0;
      auto fd = bind_one(address, err);
      if (err == EADDRNOTAVAIL && addresses.size() > 1) continue;  // gone meanwhile, or an IPv6 address still tentative
      if (err == EADDRINUSE && port != 0) {                        // another program has this port there
        bound.fds.clear();
        break;
      }
      if (!fd.is_ok()) return fd.status();
      if (port == 0) {
        HVD_ASSIGN_OR_RETURN(port, bound_port(fd.value().get()));
        address.set_port(port);
      }
      bound.fds.push_back(std::move(fd).value());
      bound.endpoints.push_back({address, wanted.interface});
    }
    if (!bound.fds.empty()) return bound;
  }
  return Status::precondition("found no port that is free on all " + std::to_string(addresses.size()) +
                              " addresses to listen on");
}

}  // namespace hvd::transport
