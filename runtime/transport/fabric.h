#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horovod/routes.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/mutex.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"
#include "runtime/transport/net/address_row.h"

struct uv_loop_s;

namespace gloo {
class Context;
}

namespace hvd::transport {

class ControlHandler;    // control/control_links.h
class ControlLinks;      // control/control_links.h
class ForkFd;            // net/fork_guard.h
class Stream;            // net/stream.h
struct ContextProgress;  // data/message_context.h
struct ControlStream;    // control/control_inbox.h
struct ExpectedMessage;  // data/operations.h
struct Hello;            // auth/handshake.h

// Where a rank listens for others.
struct ListenOptions {
  PortRange ports;
  bool loopback_only = true;            // all ranks are on this host: listen on 127.0.0.1 and nowhere else
  std::vector<std::string> interfaces;  // else: listen on these interfaces
  std::string
      rendezvous_addr;  // without those: on the interface of the route to this address; "": on every one that is up
};

// The sockets that a rank listens on, and the row that names them. They are there before it is known which rank it is,
// because it joins with the row; who connects in the meantime waits in their backlog. Shared by nobody; to be given to
// one fabric.
struct ListeningSockets;  // fabric.cc
Result<std::shared_ptr<ListeningSockets>> listen_for_ranks(const ListenOptions& options);
// How many of the ports, of the first `most`, listen_for_ranks() could take. Listens on none.
Result<int> count_free_ports(const ListenOptions& options, int most);
// For the store: protocol version, host identity, listening addresses.
Bytes address_row(const ListeningSockets& sockets);

struct FabricOptions {
  int rank = 0;
  int size = 1;
  ListenOptions listen{};  // for create() without sockets
  bool tls = false;        // on all ranks or on none
  int sockets = 1;         // TCP connections for the data of one pair of ranks, 1..8
  Millis timeout{30000};   // for connecting and for the handshake; never for a user's collective
};

// Everything one rank needs to talk to the others in one epoch: the one listener of the process, the thread hvd-net
// with its libuv loop, the authenticated connections. Owned by the Session; nothing of it survives its destructor.
// Public calls are thread-safe. In a forked child every call fails and the destructor leaves everything behind: its
// threads do not exist there.
class Fabric {
 public:
  // Starts hvd-net, which accepts connections. None is used before open().
  static Result<std::unique_ptr<Fabric>> create(const FabricOptions& options,
                                                const std::shared_ptr<ListeningSockets>& listening);
  // On sockets of its own.
  static Result<std::unique_ptr<Fabric>> create(const FabricOptions& options);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // This rank's row for the store: protocol version, host identity, listening addresses.
  const Bytes& address_row() const { return encoded_row_; }

  // Fixes epoch and keys ("ctl" and "data" of `secret`). `rows` outlives the fabric.
  Status open(std::uint64_t epoch, const crypto::Secret& secret, RowSource& rows);

  // Connects to `parent` (-1: none) and waits until each of `children` has connected, all before `deadline`. Blocks;
  // call it from the thread that runs init(). The links live on `engine_loop`, whose thread may already be running it:
  // the hand-over is posted through `post`, which runs a function on that loop's thread. `handler` outlives the links.
  Result<std::unique_ptr<ControlLinks>> connect_control(uv_loop_s* engine_loop,
                                                        std::function<void(std::function<void()>)> post, int parent,
                                                        std::span<const int> children, ControlHandler& handler,
                                                        Deadline deadline);

  // Tries each other rank at each of its addresses, in place of connections of use: `limit` for each, `deadline` for
  // all. Whoever tries this one is served meanwhile.
  Result<std::vector<RouteTry>> try_routes(Millis limit, Deadline deadline);

  // A Gloo context over our transport for the given global ranks (in set-rank order, containing this rank). Connections
  // are made when first used. `context_id` is agreed by all members and never reused in the epoch.
  Result<std::shared_ptr<gloo::Context>> make_context(std::uint64_t context_id, std::vector<int> ranks);

  // Makes the connections that these messages need and this rank has to make, many at a time. Blocks for at most the
  // timeout of each. Without it each is made, and waited for, when its first message is posted.
  Status connect_data(std::span<const ExpectedMessage> messages);
  // In place of FabricOptions::sockets from now on: the connections for each pair of ranks over which this rank sends,
  // and that it makes. Those that are there stay. Where one cannot be made soon, or this rank has several to many
  // others already, the pair has fewer. Thread-safe.
  void use_sockets(int number);

  // Of a context that make_context() gave; nothing waits in one that is gone.
  ContextProgress progress(std::uint64_t context_id);
  // Every present and future wait in that context fails with `why`. Thread-safe; the first reason stays.
  void abort_context(std::uint64_t context_id, const Status& why);

  // Every present and future wait on data connections fails with `why`, promptly. Thread-safe, idempotent (the first
  // wins).
  void abort(const Status& why);

 private:
  struct Parts;  // what has threads or sockets: a forked child leaves it alone as a whole
  // What open() fixed.
  struct Session {
    std::uint64_t epoch;
    crypto::Secret control_key;
    RowSource& rows;
  };

  Fabric(const FabricOptions& options, AddressRow row, std::vector<ForkFd> listening);
  Status usable() const;
  Result<Session> session();
  void on_stream(const Hello& hello, Stream stream);
  Hello control_hello(const Session& session, int to_rank) const;
  Result<ControlStream> connect_parent(const Session& session, int parent, Deadline deadline);

  const FabricOptions options_;
  const AddressRow row_;
  const Bytes encoded_row_;
  const int generation_;
  std::unique_ptr<Parts> parts_;
  Mutex mutex_;
  std::optional<Session> session_;
};

}  // namespace hvd::transport
