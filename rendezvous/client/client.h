#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "rendezvous/protocol/seat.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

struct ClientOptions {
  std::string host;  // a name, or a numeric IPv4 or IPv6 address
  std::uint16_t port = 0;
  crypto::Secret secret;            // the job secret; the client derives its own key
  bool tls = false;                 // as the server has it
  Millis long_poll = kMaxLongPoll;  // the longest wait of one request
  // A server that has been there and cannot be reached for so long has ended: kPeerLost, before the call's deadline.
  std::optional<Millis> patience_with_lost_server{};
};

// A rank's access to the rendezvous store. Owned by the Session; thread-safe. It has two
// authenticated connections, made on first use and kept: one for short calls and one for calls that
// wait (join, wait), so that a waiting thread does not hold up a short call; calls of the same kind
// run one after another. Connecting and transient failures are retried until the call's deadline. A
// wrong secret, an answer that is not authentic and an error of TLS fail after one more attempt, which a bit that
// flipped on the way needs; an answer that says no fails at once. Errors name host, port, path and cause. It starts no
// thread and opens no socket before the first call.
//
// Codes: kTimeout (no such key, or no answer, within the deadline), kAborted (cancel()),
// kPrecondition (the store or another rank disagrees), kInvalidArgument (a bad name or size, or the
// secret is not the server's), kInternal.
class Client {
 public:
  explicit Client(const ClientOptions& options);
  ~Client();  // Requires: no call is running. Leaves groups that are not complete.
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Connects, unless that has been done, and gives the numeric address of the server; where a name has several, the one
  // that answered.
  Result<std::string> connect(Deadline deadline);

  // Brings `row` to the job and waits until the server's plan begins an epoch with this seat. The rows of all its ranks
  // are then under scope_of_epoch(epoch), key std::to_string(rank). `environment`: what this process was told when it
  // was started. `on_slow(missing)`: called once when a long poll has ended in vain, in the process of the lowest slot
  // that waits; the text says who is missing. `progress`: see JoinBody.
  using OnSlow = std::function<void(const std::string&)>;
  Result<JoinAnswer> join(const Seat& seat, const RankNumbers& environment, ByteSpan row, Deadline deadline,
                          const OnSlow& on_slow = {}, std::uint64_t progress = 0);

  // Keys are write-once: the same value again succeeds, another one is kPrecondition.
  Status put(const std::string& scope, const std::string& key, ByteSpan value, Deadline deadline);
  // Waits until the key has been put (long poll).
  Result<Bytes> wait(const std::string& scope, const std::string& key, Deadline deadline);
  // The present values, in the order of `keys`.
  Result<std::vector<std::optional<Bytes>>> get_many(const std::string& scope, const std::vector<std::string>& keys,
                                                     Deadline deadline);
  // Makes all present and future calls return kAborted promptly. From any thread, as often as
  // wanted.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::rendezvous
