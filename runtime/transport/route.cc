#include "runtime/transport/route.h"

#include <algorithm>

#include "runtime/transport/fork_guard.h"

namespace hvd::transport {

bool route_exists(const SocketAddress& address) {
  const ForkFd probe = ForkFd::make([&] { return socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!probe.valid()) return false;
  sockaddr_storage raw{};
  const socklen_t size = address.to_sockaddr(raw);
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&raw), size) == 0;
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
  for (auto& [unused, endpoint] : ranked) ordered.push_back(std::move(endpoint));
  return ordered;
}

}  // namespace hvd::transport
