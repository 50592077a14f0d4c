#include "launcher/network/network_plan.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "runtime/base/fd.h"
#include "runtime/base/internet_address.h"

namespace hvd::launcher {
namespace {

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  }
  return text;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || is_link_local(one->ifa_addr)) continue;
    const bool is_ipv4 = one->ifa_addr->sa_family == AF_INET;
    if (!is_ipv4 && one->ifa_addr->sa_family != AF_INET6) continue;
    found.push_back({one->ifa_name, numeric(one->ifa_addr), is_ipv4});
  }
  std::stable_partition(found.begin(), found.end(), [](const InterfaceAddress& a) { return a.is_ipv4; });
  return found;
}

bool is_own_address(const std::vector<InterfaceAddress>& own, std::string_view address) {
  if (address.starts_with("127.")) return true;
  return std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& one) { return one.address == address; });
}

std::string source_address_towards(const std::string& address) {
  const auto target = InternetAddress::parse(address, 9);
  if (!target || is_link_local(target->get())) return "";
  const Fd fd(::socket(target->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), target->get(), target->size) != 0) return "";
  InternetAddress source;
  if (::getsockname(fd.get(), source.get(), &source.size) != 0) return "";
  return source.ip();
}

}  // namespace hvd::launcher
