#include "runtime/base/internet_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

namespace hvd {

std::optional<InternetAddress> InternetAddress::parse(const std::string& ip, std::uint16_t port) {
  // Left to itself, getaddrinfo takes 127.1 as well, and 010.0.0.1 as 8.0.0.1.
  in_addr dotted{};
  if (ip.find(':') == std::string::npos && ::inet_pton(AF_INET, ip.c_str(), &dotted) != 1) return std::nullopt;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  InternetAddress address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

std::string InternetAddress::ip() const {
  char text[NI_MAXHOST] = {};
  ::getnameinfo(get(), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::uint16_t InternetAddress::port() const {
  const bool is_ipv6 = storage.ss_family == AF_INET6;
  return ntohs(is_ipv6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                       : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

bool InternetAddress::is_wildcard() const {
  if (storage.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

}  // namespace hvd
