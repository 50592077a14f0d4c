#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/protocol/limits.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

struct ServerOptions {
  crypto::Secret secret;  // the job secret; the server derives its own key
  // Numeric IPv4 or IPv6 addresses of this host; at least one.
  std::vector<std::string> listen_addresses;
  int num_proc = 1;  // scales the bounds on connections
  // How long an authenticated connection may be silent between requests.
  Millis idle_deadline = kIdleDeadline;
};

// What the server has counted since it started; a snapshot. Everything but the first three is a
// client that did something wrong or a limit that was hit.
struct ServerStats {
  std::uint64_t connections = 0;     // accepted
  std::uint64_t sessions = 0;        // authenticated
  std::uint64_t requests = 0;        // authenticated and answered, or waiting
  std::uint64_t unauthorized = 0;    // answered 401
  std::uint64_t malformed = 0;       // not HTTP as we speak it, or a limit on its size
  std::uint64_t refused_routes = 0;  // 404 and 405
  std::uint64_t late = 0;            // closed at a deadline
  std::uint64_t evicted = 0;         // unauthenticated, dropped in favour of a newer connection
  std::uint64_t turned_away = 0;     // over the limit of connections, or out of descriptors

  // One line naming the counters of limits that were hit, or empty when there is nothing to report.
  std::string limits_hit() const;
};

// The rendezvous store behind HTTP/1.1, for one job. Owned by the launcher. Runs on one thread of
// its own, `hvd-rendezvous`, which owns the store, the sockets and the timers; the methods here are
// thread-safe. It decides nothing about ranks: a rank's death is the launcher's business, not the
// store's.
class Server {
 public:
  // Listens on one port, picked by the kernel and the same on all addresses. On return it accepts
  // connections.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  ~Server();  // closes all connections and joins the thread; waits for no client
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  ServerStats stats() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
