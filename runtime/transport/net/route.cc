#include "runtime/transport/net/route.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "runtime/transport/net/fork_guard.h"

namespace hvd::transport {

Result<SocketAddress> source_towards(const SocketAddress& target) {
  const ForkFd probe = ForkFd::make([&] { return socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!probe.valid()) return Status::from_errno("socket", errno);
  sockaddr_storage raw{};
  socklen_t size = target.to_sockaddr(raw);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&raw), size) != 0) {
    return Status::from_errno("no route to " + target.to_string(), errno);
  }
  size = sizeof(raw);
  if (getsockname(probe.get(), reinterpret_cast<sockaddr*>(&raw), &size) != 0) {
    return Status::from_errno("getsockname", errno);
  }
  return SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&raw));
}

bool route_exists(const SocketAddress& address) { return source_towards(address).is_ok(); }

std::vector<InterfaceAddress> addresses_on_route(std::span<const InterfaceAddress> own, const SocketAddress& source) {
  const auto holder = std::ranges::find_if(
      own, [&](const InterfaceAddress& mine) { return std::ranges::equal(mine.address.ip(), source.ip()); });
  std::vector<InterfaceAddress> chosen;
  std::ranges::copy_if(own, std::back_inserter(chosen), [&](const InterfaceAddress& mine) {
    return holder == own.end() || mine.interface == holder->interface || mine.address.is_loopback();
  });
  return chosen;
}

std::vector<Endpoint> order_candidates(const AddressRow& peer, const HostIdentity& self,
                                       std::span<const InterfaceAddress> own,
                                       const std::function<bool(const SocketAddress&)>& has_route) {
  const bool local = peer.host.shares_network(self);
  const auto is_mine = [&](const SocketAddress& address) {
    return std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& mine) {
      return std::ranges::equal(mine.address.ip(), address.ip());
    });
  };
  const auto cost = [&](const SocketAddress& address) {
    if (local) return address.is_loopback() ? 0 : 1;
    if (std::any_of(own.begin(), own.end(), [&](const auto& mine) { return mine.contains(address); })) return 0;
    return has_route(address) ? 1 : 2;
  };
  std::vector<std::pair<int, Endpoint>> ranked;
  for (const Endpoint& endpoint : peer.endpoints) {
    const SocketAddress& address = endpoint.address;
    if (!local && (address.is_loopback() || address.is_link_local() || is_mine(address))) continue;
    ranked.emplace_back(cost(address), endpoint);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Endpoint> ordered;
  ordered.reserve(ranked.size());
  for (auto& [unused, endpoint] : ranked) ordered.push_back(std::move(endpoint));
  return ordered;
}

}  // namespace hvd::transport
