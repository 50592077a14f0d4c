#include "runtime/transport/net/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bit>
#include <cerrno>
#include <memory>

namespace hvd::transport {

Result<SocketAddress> SocketAddress::from_ip(ByteSpan ip, std::uint16_t port) {
  if (ip.size() != 4 && ip.size() != 16) {
    return Status::invalid_argument("an IP address has 4 or 16 bytes, not " + std::to_string(ip.size()));
  }
  SocketAddress made;
  made.ip_.assign(ip.begin(), ip.end());
  made.port_ = port;
  return made;
}

Result<SocketAddress> SocketAddress::from_text(const std::string& ip, std::uint16_t port) {
  std::uint8_t bytes[16] = {};
  if (inet_pton(AF_INET, ip.c_str(), bytes) == 1) return from_ip({bytes, 4}, port);
  if (inet_pton(AF_INET6, ip.c_str(), bytes) == 1) return from_ip({bytes, 16}, port);
  return Status::invalid_argument("'" + ip + "' is not a numeric IP address");
}

Result<SocketAddress> SocketAddress::from_sockaddr(const sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof(in));
    return from_ip({reinterpret_cast<const std::uint8_t*>(&in.sin_addr), 4}, ntohs(in.sin_port));
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof(in));
    return from_ip({reinterpret_cast<const std::uint8_t*>(&in.sin6_addr), 16}, ntohs(in.sin6_port));
  }
  return Status::invalid_argument("not an internet address");
}

SocketAddress SocketAddress::loopback(std::uint16_t port) {
  SocketAddress made;
  made.ip_ = {127, 0, 0, 1};
  made.port_ = port;
  return made;
}

int SocketAddress::family() const { return ip_.size() == 16 ? AF_INET6 : AF_INET; }

bool SocketAddress::is_loopback() const {
  if (ip_.size() == 4) return ip_[0] == 127;
  static const Bytes v6_loopback = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return ip_ == v6_loopback;
}

bool SocketAddress::is_link_local() const {
  if (ip_.size() == 4) return ip_[0] == 169 && ip_[1] == 254;
  return ip_.size() == 16 && ip_[0] == 0xfe && (ip_[1] & 0xc0) == 0x80;
}

std::string SocketAddress::ip_text() const {
  if (ip_.empty()) return "(no address)";
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family(), ip_.data(), text, sizeof(text));
  return text;
}

std::string SocketAddress::to_string() const {
  if (ip_.empty()) return ip_text();
  const std::string port = ":" + std::to_string(port_);
  return ip_.size() == 16 ? "[" + ip_text() + "]" + port : ip_text() + port;
}

socklen_t SocketAddress::to_sockaddr(sockaddr_storage& out) const {
  out = {};
  if (ip_.size() == 16) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port_);
    std::memcpy(&in.sin6_addr, ip_.data(), 16);
    std::memcpy(&out, &in, sizeof(in));
    return sizeof(in);
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port_);
  if (ip_.size() == 4) std::memcpy(&in.sin_addr, ip_.data(), 4);
  std::memcpy(&out, &in, sizeof(in));
  return sizeof(in);
}

bool InterfaceAddress::contains(const SocketAddress& other) const {
  const ByteSpan mine = address.ip();
  const ByteSpan theirs = other.ip();
  if (mine.size() != theirs.size()) return false;
  unsigned bits = prefix_bits;
  for (std::size_t i = 0; i < mine.size() && bits > 0; ++i) {
    const unsigned here = bits < 8 ? bits : 8;
    const unsigned mask = (0xffU << (8 - here)) & 0xffU;
    if (((mine[i] ^ theirs[i]) & mask) != 0) return false;
    bits -= here;
  }
  return true;
}

Result<std::vector<InterfaceAddress>> list_interface_addresses() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return Status::from_errno("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    auto address = SocketAddress::from_sockaddr(entry->ifa_addr);
    if (!address.is_ok() || address.value().is_link_local()) continue;
    unsigned bits = 0;
    if (const auto mask = SocketAddress::from_sockaddr(entry->ifa_netmask); mask.is_ok()) {
      for (const std::uint8_t byte : mask.value().ip()) bits += static_cast<unsigned>(std::popcount(byte));
    }
    found.push_back({entry->ifa_name, std::move(address).value(), bits});
  }
  return found;
}

}  // namespace hvd::transport
