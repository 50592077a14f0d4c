#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"
#include "runtime/transport/fork_guard.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/rate_limit.h"
#include "runtime/transport/address_row.h"

namespace hvd::transport {

// Binds one port on each of `addresses` (their ports are ignored): the kernel picks it for the first address, and the
// others must have it free too, else another port is tried. Yields listening, non-blocking sockets and where they listen.
struct BoundSockets {
  std::vector<ForkFd> fds;
  std::vector<Endpoint> endpoints;
};
Result<BoundSockets> bind_listeners(const std::vector<InterfaceAddress>& addresses);

// The one listener of a process: accepts, runs the acceptor's handshake and hands authenticated streams on. A stranger's
// bytes end the stranger's connection and nothing else. Owned by the fabric; loop-confined to hvd-net.
// Invariants: at most `max_pending` unauthenticated connections; each ends kHandshakeLimit after the session opened or it
// came, whichever is later, and in any case after `patience`.
class Listener {
 public:
  static constexpr Millis kHandshakeLimit{5000};
  // Called on the loop for each authenticated stream.
  using OnStream = std::function<void(const Hello& hello, ForkFd stream)>;

  Listener(uv_loop_t* loop, std::vector<ForkFd> fds, std::size_t max_pending, Millis patience, OnStream on_stream);
  ~Listener();

  // From now on hellos are answered, also those that wait.
  void open(const AcceptorIdentity& identity);

 private:
  struct Pending;
  using PendingList = std::list<std::unique_ptr<Pending>>;

  void accept_from(std::size_t index);
  void add(ForkFd stream, std::string from);
  void advance(Pending& pending);
  bool read_some(Pending& pending);
  void finish(Pending& pending);
  void drop(Pending& pending, const std::string& why);

  uv_loop_t* loop_;
  std::vector<ForkFd> fds_;
  std::vector<std::unique_ptr<loop::Poll>> polls_;
  loop::Timer resume_;  // accepting again after the process ran out of descriptors
  std::size_t max_pending_;
  Millis patience_;
  OnStream on_stream_;
  std::optional<AcceptorIdentity> identity_;
  PendingList pending_;
  RateLimit log_limit_{Millis(1000)};
};

}  // namespace hvd::transport
