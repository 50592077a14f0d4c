#pragma once

#include <functional>
#include <span>
#include <vector>

#include "runtime/transport/net/address_row.h"

namespace hvd::transport {

// Whether the kernel has a way to send to `address`. Asks without sending: connecting a UDP socket only looks up
// routes.
bool route_exists(const SocketAddress& address);

// The address that packets from here to `target` would carry. Asks without sending.
Result<SocketAddress> source_towards(const SocketAddress& target);

// The addresses of the interface that holds `source`, and loopback for ranks on the same host; everything when none
// holds it. Pure.
std::vector<InterfaceAddress> addresses_on_route(std::span<const InterfaceAddress> own, const SocketAddress& source);

// The endpoints of a peer in the order in which to try them; pure. On a shared network loopback comes first and
// everything may be tried. Else loopback and link-local addresses are left out, and so is an address that is also one
// of ours (a container bridge has the same address on every host: connecting there reaches ourselves); addresses in one
// of our own networks come first, then those with a route, then the rest.
std::vector<Endpoint> order_candidates(const AddressRow& peer, const HostIdentity& self,
                                       std::span<const InterfaceAddress> own,
                                       const std::function<bool(const SocketAddress&)>& has_route);

}  // namespace hvd::transport
