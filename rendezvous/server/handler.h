#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/kv/join_table.h"
#include "rendezvous/kv/store.h"
#include "rendezvous/protocol/routes.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

// One number per connection; never used again. It also is the connection's WaiterId and MemberId.
using ConnectionId = std::uint64_t;

struct Reply {
  int status = 200;
  Bytes body;
};

// Authenticated requests in, replies out: the store, who joins, and the rules between them. Pure: knows no socket and
// no clock; owned by the server and used on its thread only. A connection has at most one request here at a time.
class Handler {
 public:
  // `seat_key`: that of the job, for the tokens of those who join. The first epoch is `epoch_before` + 1.
  Handler(std::shared_ptr<Plan> plan, const crypto::Secret& seat_key, std::uint64_t epoch_before = 0);

  // What became of a request: a reply, or nullopt when the caller has to wait for at most `wait`
  // (then expire()). `released` are connections whose waiting this request ended.
  struct Outcome {
    std::optional<Reply> reply;
    Millis wait{0};
    std::vector<std::pair<ConnectionId, Reply>> released;
  };
  // Requires: the connection has no request waiting; the route is not kSession.
  Outcome handle(ConnectionId connection, const Route& route, ByteSpan body);
  // Asks the plan again, because something that it decides by has changed; gives the answers that follow.
  std::vector<std::pair<ConnectionId, Reply>> reconsider();

  // Puts a value into the scope `name` of the current epoch, for its ranks; nothing happens while there is none, or
  // when the key has a value. Gives the answers to those who waited for it.
  std::vector<std::pair<ConnectionId, Reply>> publish(std::string_view name, std::string_view key, ByteSpan value);

  // Puts a value into kJobScope, unless the key has one. The same answers.
  std::vector<std::pair<ConnectionId, Reply>> announce(std::string_view key, ByteSpan value);

  // The time of a waiting request has run out; the reply says what is missing. Requires: it waits.
  Reply expire(ConnectionId connection);
  // The connection is gone.
  void forget(ConnectionId connection);

  const Store& store() const { return store_; }
  const JoinTable& joins() const { return joins_; }

 private:
  Outcome join(ConnectionId connection, ByteSpan body);
  Outcome get(ConnectionId connection, const Route& route);
  Reply get_many(ByteSpan body) const;
  void put(const Route& route, ByteSpan body, Outcome& outcome);
  std::vector<std::pair<ConnectionId, Reply>> replies_to(const JoinOutcome& joined);
  Status store_rows(const JoinOutcome& joined);
  std::vector<std::pair<ConnectionId, Reply>> put_for_ranks(const std::string& scope, std::string_view key,
                                                            ByteSpan value);
  Status check_epoch(std::string_view scope) const;

  const crypto::Secret seat_key_;
  Store store_;
  JoinTable joins_;
};

}  // namespace hvd::rendezvous
