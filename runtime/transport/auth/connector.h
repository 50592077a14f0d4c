#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/crypto/secret.h"
#include "runtime/transport/auth/handshake.h"
#include "runtime/transport/net/address_row.h"
#include "runtime/transport/net/sockets.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

// Makes one authenticated connection to another rank: picks among its addresses by route, tries the next when one
// fails, and goes on in rounds until the deadline, because a peer may not have opened its session yet. Blocks the
// calling thread, never for longer than the deadline or cancel(). Immutable, thread-safe. Does not know rows from the
// store.
class Connector {
 public:
  // Of each address, when there is another to try; in every round so much longer. A host that is there takes a
  // connection at once, however busy it is, so an address to which there is no way has a quarter of that at first. It
  // has twice as much in each round, until that is all: the system says after seconds that a host is down.
  static constexpr Millis kAttemptLimit{1000};
  static constexpr int kPartForConnecting = 4;

  Connector(HostIdentity self, const Cancel& cancel, Millis attempt_limit = kAttemptLimit)
      : self_(std::move(self)), cancel_(cancel), attempt_limit_(attempt_limit) {}

  // `hello` without its nonce. The stream is non-blocking and carries nothing yet. The error names the rank, its host,
  // every address tried and what happened there: kPeerLost when nobody listens, kPrecondition when the peer refuses or
  // is not who it should be, kTimeout, kAborted.
  Result<Stream> connect(const AddressRow& peer, const Hello& hello, const crypto::Secret& key,
                         Deadline deadline) const;

  // How a try at one address ended, apart from success: no connection, closed during the handshake, not who it should
  // be, nothing for so long.
  enum class Outcome { kGone, kHungUp, kRefused, kLater };
  struct Attempt {
    Outcome outcome = Outcome::kLater;
    std::string reason;
  };
  // The addresses of a peer that connect() tries, in that order.
  Result<std::vector<Endpoint>> candidates(const AddressRow& peer) const;
  // As connect(), but to these addresses: `last` says of each how it ended, and the error nothing but its code and
  // whether time was up.
  Result<Stream> connect_any(std::span<const Endpoint> endpoints, const Hello& hello, const crypto::Secret& key,
                             Deadline deadline, std::vector<Attempt>& last) const;

 private:
  struct Limits {
    Millis connecting;
    Millis all;
  };
  Limits limits_of(int round) const;
  // `limits`: absent where there is nothing else to try.
  Result<Stream> try_endpoint(const Endpoint& endpoint, Hello hello, const crypto::Secret& key,
                              std::optional<Limits> limits, Deadline deadline, Attempt& attempt) const;
  // `tunnel`: made when the handshake says so.
  Status shake_hands(int fd, ConnectorHandshake& handshake, std::unique_ptr<tls::Tunnel>& tunnel,
                     Deadline attempt_limit, Deadline deadline) const;

  HostIdentity self_;
  const Cancel& cancel_;
  Millis attempt_limit_;
};

}  // namespace hvd::transport
