#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/kv/join_table.h"
#include "rendezvous/kv/store.h"
#include "rendezvous/protocol/routes.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

// One number per connection; never used again. It also is the connection's WaiterId and MemberId.
using ConnectionId = std::uint64_t;

struct Reply {
  int status = 200;
  Bytes body;
};

// Authenticated requests in, replies out: the store, the groups and the rules between them. Pure:
// knows no socket, no clock and no key; owned by the server and used on its thread only. A
// connection has at most one request here at a time.
class Handler {
 public:
  Handler();

  // What became of a request: a reply, or nullopt when the caller has to wait for at most `wait`
  // (then expire()). `released` are connections whose waiting this request ended.
  struct Outcome {
    std::optional<Reply> reply;
    Millis wait{0};
    std::vector<std::pair<ConnectionId, Reply>> released;
  };
  // `owner` names the client in words and for DELETE. Requires: the connection has no request
  // waiting; the route is not kSession.
  Outcome handle(ConnectionId connection, std::string_view owner, const Route& route, ByteSpan body);

  // The time of a waiting request is over; the reply says what is missing. Requires: it waits.
  Reply expire(ConnectionId connection);
  // The connection is gone.
  void forget(ConnectionId connection);

  const Store& store() const { return store_; }
  const JoinTable& joins() const { return joins_; }

 private:
  Outcome join(ConnectionId connection, ByteSpan body);
  Outcome get(ConnectionId connection, const Route& route);
  Reply get_many(ByteSpan body) const;
  void put(std::string_view owner, const Route& route, ByteSpan body, Outcome& outcome);
  void file_rows(const JoinOutcome& joined, Outcome& outcome);
  Status check_epoch(std::string_view scope) const;

  Store store_;
  JoinTable joins_;
};

}  // namespace hvd::rendezvous
