#pragma once

// What the server uses of Asio. Boost 1.74 uses std::exchange without including <utility>, so that
// goes first.
// clang-format off
#include <utility>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
// clang-format on

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

struct ListenSockets {
  std::uint16_t port = 0;
  struct One {
    Fd fd;
    bool is_v6 = false;
  };
  std::vector<One> sockets;  // in the order of the addresses
};

// One listening socket for each numeric address, all on the same one of `ports`; non-blocking and CLOEXEC. An address
// given twice is listened on once. kInvalidArgument names an address that is not numeric or not of this host.
Result<ListenSockets> listen_on(const std::vector<std::string>& addresses, const PortRange& ports);

// Whether a numeric address stands for all of this host's.
bool is_wildcard(const std::string& address);

}  // namespace hvd::rendezvous
