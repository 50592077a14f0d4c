#pragma once

#include <vector>

#include "runtime/transport/address_row.h"
#include "runtime/transport/fork_guard.h"
#include "runtime/transport/socket_address.h"

namespace hvd::transport {

// Binds one port on each of `addresses` (their ports are ignored): the kernel picks it for the first address, and the
// others must have it free too, else another port is tried. Yields listening, non-blocking sockets and where they
// listen.
struct BoundSockets {
  std::vector<ForkFd> fds;
  std::vector<Endpoint> endpoints;
};
Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses);

}  // namespace hvd::transport
