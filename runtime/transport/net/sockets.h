#pragma once

#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"
#include "runtime/transport/net/address_row.h"
#include "runtime/transport/net/fork_guard.h"
#include "runtime/transport/net/socket_address.h"

namespace hvd::transport {

// After this long without a sign of life from the kernel of a peer's host, the peer is lost.
inline constexpr Millis kPeerSilence{6000};

enum class Liveness {
  kControl,  // keepalive and TCP_USER_TIMEOUT: little is in flight, the window never closes for long
  kData,     // keepalive only: to TCP_USER_TIMEOUT a full window counts as death, and a stopped process fills it
};

// No delay, and the notice of a dead host that `liveness` says. Costs no traffic of ours.
Status configure_stream(int fd, Liveness liveness);

// A thread that blocks with its fd() as wake_fd (base/socket_io.h) can be woken for good. Thread-safe.
class Cancel {
 public:
  Cancel();
  // Cancelled with `outer`, too, which outlives it.
  explicit Cancel(const Cancel* outer);
  void cancel();  // sticky
  bool cancelled() const;
  int fd() const { return either_.valid() ? either_.get() : event_.get(); }  // readable once cancelled

 private:
  Fd event_;
  Fd either_;  // where there is an outer one: an epoll set of both
};

// A connected non-blocking stream. Fails with kTimeout, kAborted, or kPeerLost and the reason.
Result<ForkFd> connect_stream(const SocketAddress& to, Deadline deadline, const Cancel& cancel);

// Binds one of `ports` on each of `addresses` (their ports are ignored): it must be free on all of them, else another
// is tried. Yields listening, non-blocking sockets and where they
// listen.
struct BoundSockets {
  std::vector<ForkFd> fds;
  std::vector<Endpoint> endpoints;
};
Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses, const PortRange& ports);

// How many of `ports`, of the first `most`, bind_listeners() could take now: binds and closes, and listens on none.
// Requires: !ports.is_any().
Result<int> count_free_ports(const std::vector<InterfaceAddress>& addresses, const PortRange& ports, int most);

}  // namespace hvd::transport
