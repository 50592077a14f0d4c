#include "rendezvous/server/sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>

#include "runtime/base/internet_address.h"

namespace hvd::rendezvous {
namespace {

// The port that the first address gets may be taken on another one; then all is tried again.
constexpr int kPortAttempts = 50;

// An invalid Fd when the port is taken.
Result<Fd> listen_at(const InternetAddress& address, const std::string& text, std::uint16_t port) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket for " + text, errno);
  const int on = 1;
  // A port that somebody chose is the same after a restart, when connections of the last server linger.
  if (port != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE && port != 0) return Fd();
    if (errno == EADDRNOTAVAIL)
      return Status::invalid_argument("listen address " + text + " is not an address of this host");
    return Status::from_errno("listen on " + text, errno);
  }
  return fd;
}

// One attempt; no sockets when the port was taken on one of the addresses.
Result<ListenSockets> try_all(const std::vector<std::string>& addresses, std::uint16_t port) {
  ListenSockets all;
  all.port = port;
  std::set<std::string> seen;
  for (const std::string& text : addresses) {
    if (!seen.insert(text).second) continue;
    const auto address = InternetAddress::parse(text, all.port);
    if (!address) {
      return Status::invalid_argument("listen address \"" + text + "\" is not a numeric IPv4 or IPv6 address");
    }
    HVD_ASSIGN_OR_RETURN(Fd fd, listen_at(*address, text, all.port));
    if (!fd.valid()) return ListenSockets{};
    if (all.port == 0) {
      InternetAddress bound;
      if (getsockname(fd.get(), bound.get(), &bound.size) != 0) return Status::from_errno("getsockname", errno);
      all.port = bound.port();
    }
    all.sockets.push_back({std::move(fd), address->storage.ss_family == AF_INET6});
  }
  return all;
}

}  // namespace

bool is_wildcard(const std::string& address) {
  const auto parsed = InternetAddress::parse(address, 0);
  return parsed && parsed->is_wildcard();
}

Result<ListenSockets> listen_on(const std::vector<std::string>& addresses, const PortRange& ports) {
  if (addresses.empty()) return Status::invalid_argument("no address to listen on");
  for (const std::uint16_t port : ports.candidates(kPortAttempts)) {
    HVD_ASSIGN_OR_RETURN(ListenSockets all, try_all(addresses, port));
    if (!all.sockets.empty()) return all;
  }
  if (ports.is_any()) {
    return Status::internal("no port is free on all of " + std::to_string(addresses.size()) + " addresses after " +
                            std::to_string(kPortAttempts) + " attempts");
  }
  const std::string what = ports.first == ports.last ? "port " : "each of the ports ";
  return Status::invalid_argument(what + ports.to_string() + " is taken");
}

}  // namespace hvd::rendezvous
