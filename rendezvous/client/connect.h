#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/internet_address.h"
#include "runtime/base/status.h"

// From the name of a host to a connection, within a deadline. Deadline, `wake_fd` and codes as in base/socket_io.h, and
// kInvalidArgument for what is no name.
namespace hvd::rendezvous {

// The addresses of a host, the system's favourite first. A numeric address is read here; for a name the system's
// resolver is asked on a thread of its own, because nothing else gives that a deadline. The thread outlives the
// deadline until the resolver gives up (resolv.conf: some seconds), and touches nothing of ours then. kPeerLost when
// nobody knows the name: it may be known a moment later, where a name server learns of hosts as they start.
Result<std::vector<InternetAddress>> resolve(const std::string& host, std::uint16_t port, const Deadline& deadline,
                                             int wake_fd);

// A connection to the first of the addresses that accepts one, non-blocking and CLOEXEC, with TCP_NODELAY. Each gets
// its share of the time that is left, so that one that drops packets does not take it from the next.
Result<Fd> connect_to_any(std::span<const InternetAddress> addresses, const Deadline& deadline, int wake_fd);

// Both.
Result<Fd> connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline, int wake_fd);

// The numeric address of the other end.
Result<std::string> peer_address(const Fd& socket);

}  // namespace hvd::rendezvous
