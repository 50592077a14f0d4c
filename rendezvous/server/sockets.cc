#include "rendezvous/server/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

namespace hvd::rendezvous {
namespace {

// The port that the first address gets may be taken on another one; then all is tried again.
constexpr int kPortAttempts = 50;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> parse_address(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(text.c_str(), "0", &hints, &found);
  if (error != 0) {
    return Status::invalid_argument("listen address \"" + text + "\" is not a numeric IPv4 or IPv6 address");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  return address;
}

in_port_t& port_of(Address& address) {
  if (address.storage.ss_family == AF_INET6) return reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port;
  return reinterpret_cast<sockaddr_in&>(address.storage).sin_port;
}

// An invalid Fd when the port is taken.
Result<Fd> listen_at(Address address, const std::string& text, std::uint16_t port) {
  port_of(address) = htons(port);
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno("socket for " + text, errno);
  const int on = 1;
  // A port that somebody chose is the same after a restart, when connections of the last server linger.
  if (port != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE && port != 0) return Fd();
    if (errno == EADDRNOTAVAIL)
      return Status::invalid_argument("listen address " + text + " is not an address of this host");
    return Status::from_errno("listen on " + text, errno);
  }
  return fd;
}

Result<std::uint16_t> bound_port(const Fd& fd) {
  Address address;
  address.size = sizeof(address.storage);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return Status::from_errno("getsockname", errno);
  }
  return ntohs(port_of(address));
}

// One attempt; no sockets when the port was taken on one of the addresses.
Result<ListenSockets> try_all(const std::vector<std::string>& addresses, std::uint16_t port) {
  ListenSockets all;
  all.port = port;
  std::set<std::string> seen;
  for (const std::string& text : addresses) {
    if (!seen.insert(text).second) continue;
    HVD_ASSIGN_OR_RETURN(const Address address, parse_address(text));
    HVD_ASSIGN_OR_RETURN(Fd fd, listen_at(address, text, all.port));
    if (!fd.valid()) return ListenSockets{};
    if (all.port == 0) {
      HVD_ASSIGN_OR_RETURN(all.port, bound_port(fd));
    }
    all.sockets.push_back({std::move(fd), address.storage.ss_family == AF_INET6});
  }
  return all;
}

}  // namespace

bool is_wildcard(const std::string& address) {
  const Result<Address> parsed = parse_address(address);
  if (!parsed.is_ok()) return false;
  const sockaddr_storage& storage = parsed.value().storage;
  if (storage.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
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
