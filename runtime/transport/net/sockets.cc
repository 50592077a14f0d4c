#include "runtime/transport/net/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"

namespace hvd::transport {

namespace {

Status set_option(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) return Status::from_errno(name, errno);
  return Status::ok();
}

}  // namespace

Status configure_stream(int fd, Liveness liveness) {
  HVD_FAILPOINT_RETURN("net.configure");
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
  if (!event_.valid()) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Cancel::Cancel(const Cancel* outer) : Cancel() {
  either_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  if (!either_.valid() || epoll_ctl(either_.get(), EPOLL_CTL_ADD, event_.get(), &readable) != 0 ||
      epoll_ctl(either_.get(), EPOLL_CTL_ADD, outer->fd(), &readable) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll");
  }
}

void Cancel::cancel() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof(one));  // never read: it stays readable
}

bool Cancel::cancelled() const {
  pollfd entry{fd(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

Result<ForkFd> connect_stream(const SocketAddress& to, Deadline deadline, const Cancel& cancel) {
  ForkFd fd = ForkFd::make([&] {
    return HVD_FAILPOINT_CALL("net.socket",
                              socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  const socklen_t size = to.to_sockaddr(raw);
  const Status connected =
      connect_socket(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size, deadline, cancel.fd());
  // Whatever the reason, a firewall, say: nobody is reached there.
  if (connected.code() == StatusCode::kInternal) return Status::peer_lost(connected.message());
  HVD_RETURN_IF_ERROR(connected);
  return fd;
}

namespace {

constexpr int kPortAttempts = 20;

// On failure `err` has the error number. `reuse`: connections of an earlier listener may linger on the port.
Result<ForkFd> bind_one(const SocketAddress& address, bool reuse, int& err) {
  ForkFd fd =
      ForkFd::make([&] { return socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); });
  if (!fd.valid()) return Status::from_errno("socket", errno);
  const int on = 1;
  if (reuse) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage raw{};
  const socklen_t size = address.to_sockaddr(raw);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) != 0) {
    err = errno;
    return Status::from_errno("cannot listen on " + address.to_string(), err);
  }
  return fd;
}

Result<ForkFd> listen_on(const SocketAddress& address, bool reuse, int& err) {
  HVD_ASSIGN_OR_RETURN(ForkFd fd, bind_one(address, reuse, err));
  if (HVD_FAILPOINT_CALL("net.listen", listen(fd.get(), SOMAXCONN)) !=
      0) {  // another may have bound it, too, and be the first to listen
    err = errno;
    return Status::from_errno("listen on " + address.to_string(), err);
  }
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

Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses, const PortRange& ports) {
  if (addresses.empty()) return Status::precondition("there is no network address to listen on");
  for (std::uint16_t port : ports.candidates(kPortAttempts)) {
    BoundSockets bound;
    for (const InterfaceAddress& wanted : addresses) {
      SocketAddress address = wanted.address;
      address.set_port(port);
      int err = 0;
      auto fd = listen_on(address, !ports.is_any(), err);
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
  return Status::precondition("found no port" + (ports.is_any() ? "" : " of " + ports.to_string()) +
                              " that is free on all " + std::to_string(addresses.size()) + " addresses to listen on");
}

Result<int> count_free_ports(const std::vector<InterfaceAddress>& addresses, const PortRange& ports, int most) {
  int free = 0;
  for (int port = ports.first; port <= std::min<int>(ports.last, ports.first + most - 1); ++port) {
    std::size_t bound = 0;
    std::size_t gone = 0;
    for (const InterfaceAddress& wanted : addresses) {
      SocketAddress address = wanted.address;
      address.set_port(static_cast<std::uint16_t>(port));
      int err = 0;
      const auto fd = bind_one(address, true, err);
      if (!fd.is_ok() && err != EADDRINUSE && err != EACCES && err != EADDRNOTAVAIL) return fd.status();
      bound += fd.is_ok() ? 1 : 0;
      gone += err == EADDRNOTAVAIL ? 1 : 0;
    }
    free += bound > 0 && bound + gone == addresses.size() ? 1 : 0;
  }
  return free;
}

}  // namespace hvd::transport
