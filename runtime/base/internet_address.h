#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hvd {

// An IPv4 or IPv6 address with a port, as the system's calls take it. A new one has room for what they give.
struct InternetAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);

  // Of a numeric address, IPv4 as four decimal numbers, IPv6 without brackets; no resolver is asked.
  static std::optional<InternetAddress> parse(const std::string& ip, std::uint16_t port);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string ip() const;  // numeric; "" where there is none
  std::uint16_t port() const;
  bool is_wildcard() const;
};

}  // namespace hvd
