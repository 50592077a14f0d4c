#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::transport {

// An IPv4 or IPv6 address with a port. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  // The four or sixteen bytes of an address in network order; anything else is kInvalidArgument.
  static Result<SocketAddress> from_ip(ByteSpan ip, std::uint16_t port);
  // A numeric address ("10.0.0.1", "fd00::1"); anything else is kInvalidArgument.
  static Result<SocketAddress> from_text(const std::string& ip, std::uint16_t port);
  // Requires: AF_INET or AF_INET6, else kInvalidArgument.
  static Result<SocketAddress> from_sockaddr(const sockaddr* address);
  static SocketAddress loopback(std::uint16_t port);

  ByteSpan ip() const { return ip_; }
  std::uint16_t port() const { return port_; }
  void set_port(std::uint16_t port) { port_ = port; }
  int family() const;
  bool is_loopback() const;
  bool is_link_local() const;
  // "10.0.0.1" or "fe80::1".
  std::string ip_text() const;
  // "10.0.0.1:80" or "[fe80::1]:80".
  std::string to_string() const;
  // Fills `out` and returns the size for bind and connect.
  socklen_t to_sockaddr(sockaddr_storage& out) const;

  bool operator==(const SocketAddress&) const = default;

 private:
  Bytes ip_;
  std::uint16_t port_ = 0;
};

// One address of a network interface of this host.
struct InterfaceAddress {
  std::string interface;
  SocketAddress address;  // port 0
  unsigned prefix_bits = 0;

  // Whether `other` lies in this interface's network.
  bool contains(const SocketAddress& other) const;
};

// Every usable address of the interfaces that are up, link-local ones left out.
Result<std::vector<InterfaceAddress>> list_interface_addresses();

}  // namespace hvd::transport
