#include "rendezvous/server/handler.h"

#include <utility>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "runtime/base/failpoint.h"

namespace hvd::rendezvous {
namespace {

constexpr int kOk = 200;
constexpr int kNotYet = 202;
constexpr int kNotThere = 404;

Reply error_reply(const Status& status) {
  const int http_status = status.code() == StatusCode::kInvalidArgument ? 400 : 409;
  return {http_status, encode_error(status)};
}

Reply reply_of(const Status& status) { return status.is_ok() ? Reply{kOk, {}} : error_reply(status); }

}  // namespace

Handler::Handler(std::shared_ptr<Plan> plan, const crypto::Secret& seat_key, std::uint64_t epoch_before)
    : seat_key_(seat_key),
      store_({.value_bytes = kMaxValueBytes, .total_bytes = kMaxStoreBytes, .keys = kMaxStoreKeys}),
      joins_(std::move(plan), epoch_before) {}

Handler::Outcome Handler::handle(ConnectionId connection, const Route& route, ByteSpan body) {
  Outcome outcome;
  switch (route.action) {
    case Action::kJoin: return join(connection, body);
    case Action::kGet: return get(connection, route);
    case Action::kGetMany: outcome.reply = get_many(body); break;
    case Action::kPut: put(route, body, outcome); break;
    case Action::kSession: HVD_CHECK(false, "sessions are opened by the connection");
  }
  return outcome;
}

// A scope of an epoch exists only while the epoch is current: a rank that was left behind in an
// earlier one must neither read what the current one has nor add to it.
Status Handler::check_epoch(std::string_view scope) const {
  const auto epoch = epoch_of_scope(scope);
  if (!epoch || joins_.is_current(*epoch)) return Status::ok();
  return Status::precondition(
      "the session that this process has is over: its ranks have joined again since, or the rendezvous server is not "
      "the "
      "one that they joined");
}

void Handler::put(const Route& route, ByteSpan body, Outcome& outcome) {
  if (is_row_scope(route.scope)) {
    outcome.reply = error_reply(Status::precondition("scope " + route.scope + " is for rows; only a join writes it"));
    return;
  }
  if (Status ended = check_epoch(route.scope); !ended.is_ok()) {
    outcome.reply = error_reply(ended);
    return;
  }
  auto waiters = store_.put(route.scope, route.key, body);
  outcome.reply = reply_of(waiters.status());
  if (!waiters.is_ok()) return;
  for (WaiterId waiter : waiters.value())
    outcome.released.emplace_back(waiter, Reply{kOk, Bytes(body.begin(), body.end())});
}

Handler::Outcome Handler::get(ConnectionId connection, const Route& route) {
  Outcome outcome;
  if (Status ended = check_epoch(route.scope); !ended.is_ok()) {
    outcome.reply = error_reply(ended);
  } else if (const Bytes* value = store_.find(route.scope, route.key)) {
    outcome.reply = Reply{kOk, *value};
  } else if (route.wait == Millis(0)) {
    outcome.reply = Reply{kNotThere, {}};
  } else if (Status full = store_.watch(route.scope, route.key, connection); !full.is_ok()) {
    outcome.reply = error_reply(full);
  } else {
    outcome.wait = route.wait;
  }
  return outcome;
}

Reply Handler::get_many(ByteSpan body) const {
  const auto decoded = decode_get_many(body);
  if (!decoded.is_ok()) return error_reply(decoded.status());
  const GetManyBody& request = decoded.value();
  if (Status ended = check_epoch(request.scope); !ended.is_ok()) return error_reply(ended);
  std::vector<std::optional<ByteSpan>> values;
  std::size_t bytes = kValuesOverhead;
  for (const std::string& key : request.keys) {
    const Bytes* value = store_.find(request.scope, key);
    bytes += kValueOverhead + (value != nullptr ? value->size() : 0);
    if (bytes > kMaxBodyBytes) break;  // the client asks again for the rest; one value always fits
    values.push_back(value != nullptr ? std::optional(ByteSpan(*value)) : std::nullopt);
  }
  return {kOk, encode_values(values)};
}

Handler::Outcome Handler::join(ConnectionId connection, ByteSpan body) {
  Outcome outcome;
  HVD_FAILPOINT("server.join");
  auto decoded = decode_join(body);
  if (!decoded.is_ok()) {
    outcome.reply = error_reply(decoded.status());
    return outcome;
  }
  JoinBody request = std::move(decoded).value();
  if (!is_authentic(seat_key_, request.seat)) {
    outcome.reply = error_reply(Status::precondition("the token is not that of incarnation " +
                                                     std::to_string(request.seat.process.number) + " of slot " +
                                                     std::to_string(request.seat.process.slot)));
    return outcome;
  }
  outcome.wait = request.wait;
  const JoinOutcome joined = joins_.join(std::move(request), connection);
  if (joined.left) {  // who still begins that session waits for it in vain
    const std::string lost = "rank " + std::to_string(*joined.left) + " has given up this session and joins again";
    outcome.released = publish(kLossScope, kLossKey, as_bytes(lost));
  }
  for (auto& [member, reply] : replies_to(joined)) {
    if (member == connection) {
      outcome.reply = std::move(reply);
    } else {
      outcome.released.emplace_back(member, std::move(reply));
    }
  }
  return outcome;
}

std::vector<std::pair<ConnectionId, Reply>> Handler::reconsider() { return replies_to(joins_.reconsider()); }

std::vector<std::pair<ConnectionId, Reply>> Handler::publish(std::string_view name, std::string_view key,
                                                             ByteSpan value) {
  if (joins_.epoch() == 0) return {};
  return put_for_ranks(scope_of_epoch(joins_.epoch(), name), key, value);
}

std::vector<std::pair<ConnectionId, Reply>> Handler::announce(std::string_view key, ByteSpan value) {
  return put_for_ranks(kJobScope, key, value);
}

std::vector<std::pair<ConnectionId, Reply>> Handler::put_for_ranks(const std::string& scope, std::string_view key,
                                                                   ByteSpan value) {
  std::vector<std::pair<ConnectionId, Reply>> replies;
  const auto waiters = store_.put(scope, std::string(key), value);
  if (!waiters.is_ok()) return replies;
  for (const WaiterId waiter : waiters.value())
    replies.emplace_back(waiter, Reply{kOk, Bytes(value.begin(), value.end())});
  return replies;
}

std::vector<std::pair<ConnectionId, Reply>> Handler::replies_to(const JoinOutcome& joined) {
  std::vector<std::pair<ConnectionId, Reply>> replies;
  for (const auto& [member, why] : joined.refused) replies.emplace_back(member, error_reply(why));
  if (joined.joined.empty()) return replies;
  HVD_FAILPOINT("server.round");
  if (joined.retired_epoch != 0) {
    const Reply ended = error_reply(Status::precondition("the session is over: its ranks have joined again"));
    for (WaiterId waiter : store_.drop_scopes(scope_of_epoch(joined.retired_epoch)))
      replies.emplace_back(waiter, ended);
  }
  const Status stored = store_rows(joined).annotate("storing the rows");
  for (const auto& [member, numbers] : joined.joined) {
    replies.emplace_back(
        member, stored.is_ok() ? Reply{kOk, encode_join_answer({joined.epoch, numbers})} : error_reply(stored));
  }
  return replies;
}

Status Handler::store_rows(const JoinOutcome& joined) {
  for (std::size_t rank = 0; rank < joined.rows.size(); ++rank) {
    HVD_RETURN_IF_ERROR(store_.put(scope_of_epoch(joined.epoch), std::to_string(rank), joined.rows[rank]).status());
  }
  return Status::ok();
}

Reply Handler::expire(ConnectionId connection) {
  if (!joins_.is_waiting(connection)) {
    forget(connection);
    return {kNotThere, {}};
  }
  const NotYetBody body{.first_slot = joins_.first_slot(), .missing = joins_.describe_missing()};
  joins_.end_poll(connection);
  return {kNotYet, encode_not_yet(body)};
}

void Handler::forget(ConnectionId connection) {
  joins_.leave(connection);
  store_.unwatch(connection);
}

}  // namespace hvd::rendezvous
