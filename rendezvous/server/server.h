#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/kv/plan.h"
#include "rendezvous/protocol/limits.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

struct ServerOptions {
  crypto::Secret secret;  // the job secret; the server derives its own keys
  std::shared_ptr<Plan> plan;
  // Numeric IPv4 or IPv6 addresses of this host, or a wildcard; at least one.
  std::vector<std::string> listen_addresses;
  bool tls = false;      // and then every client must speak it
  PortRange ports = {};  // one of them, the same on all addresses
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

// Where the processes of one job meet: the rendezvous store behind HTTP/1.1, as a library. Whoever starts processes
// owns one: horovodrun for its own, `horovodrun --serve` and horovod.runner.RendezvousServer for processes that
// something else starts. It knows nothing of how they are started: the plan says which may join and what they become,
// and hears of each that waits. Runs on one thread of its own, `hvd-rendezvous`, which owns the store, the sockets and
// the timers; the methods here are thread-safe. A process that ends is the starter's business, not the store's.
//
// A process reaches it with HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, the job secret, and a seat (protocol/signing.h),
// which without an agent is slot HOROVOD_RANK, incarnation 0 (docs/design/job-bootstrap.md).
class Server {
 public:
  // On return it accepts connections. kInvalidArgument for a plan without slots and for an address that is not of this
  // host.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  ~Server();  // closes all connections and joins the thread; waits for no client
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  // What a process on another host may be told to connect to: the first address, or this host's name for a wildcard.
  std::string address() const;
  // On these addresses too, with the same port; an error, and then on none of them.
  Status listen_also(const std::vector<std::string>& addresses);
  // Has the plan decide again; for plans whose mind another thread changes.
  void reconsider();
  // A value for the ranks of the current epoch, in their scope `name` (scope_of_epoch()): news from the starter, which
  // nobody hears who comes later. Nothing happens before the first epoch.
  void publish(const std::string& name, const std::string& key, const Bytes& value);
  // A value in scope kJobScope, which lives as long as the server: news for processes that have not joined yet.
  void announce(const std::string& key, const Bytes& value);
  ServerStats stats() const;
  // Waits until no client that has shown the key has a connection. Clients keep theirs for as long as they live, if
  // `idle_deadline` is long enough, and a client's end closes them. False at the deadline.
  bool wait_until_deserted(const Deadline& deadline);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
