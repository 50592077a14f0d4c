#include "rendezvous/server/handler.h"

#include <utility>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"

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

Handler::Handler()
    : store_({.value_bytes = kMaxValueBytes, .total_bytes = kMaxStoreBytes, .keys = kMaxStoreKeys}),
      joins_({.groups = kMaxGroups,
              .group_size = kMaxGroupSize,
              .row_bytes = kMaxRowBytes,
              .total_row_bytes = kMaxStoreBytes}) {}

Handler::Outcome Handler::handle(ConnectionId connection, std::string_view owner, const Route& route, ByteSpan body) {
  Outcome outcome;
  switch (route.action) {
    case Action::kJoin: return join(connection, body);
    case Action::kGet: return get(connection, route);
    case Action::kGetMany: outcome.reply = get_many(body); break;
    case Action::kPut: put(owner, route, body, outcome); break;
    case Action::kErase: {
      Status status = check_epoch(route.scope);
      outcome.reply = reply_of(status.is_ok() ? store_.erase(route.scope, route.key, owner) : status);
      break;
    }
    case Action::kSession: HVD_CHECK(false, "sessions are opened by the connection");
  }
  return outcome;
}

// A scope of an epoch exists only while the epoch is current: a rank that was left behind in an
// earlier one must neither read what is there now nor add to it.
Status Handler::check_epoch(std::string_view scope) const {
  const auto epoch = epoch_of_scope(scope);
  if (!epoch || joins_.is_current(*epoch)) return Status::ok();
  return Status::precondition("scope " + std::string(scope) +
                              " belongs to an epoch that is not current (the latest is " +
                              std::to_string(joins_.last_epoch()) + ")");
}

void Handler::put(std::string_view owner, const Route& route, ByteSpan body, Outcome& outcome) {
  if (is_row_scope(route.scope)) {
    outcome.reply = error_reply(Status::precondition("scope " + route.scope + " is for rows; only a join writes it"));
    return;
  }
  if (Status over = check_epoch(route.scope); !over.is_ok()) {
    outcome.reply = error_reply(over);
    return;
  }
  auto waiters = store_.put(route.scope, route.key, body, owner);
  outcome.reply = reply_of(waiters.status());
  if (!waiters.is_ok()) return;
  for (WaiterId waiter : waiters.value())
    outcome.released.emplace_back(waiter, Reply{kOk, Bytes(body.begin(), body.end())});
}

Handler::Outcome Handler::get(ConnectionId connection, const Route& route) {
  Outcome outcome;
  if (Status over = check_epoch(route.scope); !over.is_ok()) {
    outcome.reply = error_reply(over);
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
  if (Status over = check_epoch(request.scope); !over.is_ok()) return error_reply(over);
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
  auto decoded = decode_join(body);
  if (!decoded.is_ok()) {
    outcome.reply = error_reply(decoded.status());
    return outcome;
  }
  JoinBody request = std::move(decoded).value();
  const Millis wait = request.wait;
  JoinOutcome joined = joins_.join({.group = std::move(request.group),
                                    .rank = request.rank,
                                    .size = request.size,
                                    .nonce = request.nonce,
                                    .row = std::move(request.row)},
                                   connection);
  if (joined.replaced) outcome.released.emplace_back(*joined.replaced, error_reply(joined.replaced_error));
  for (MemberId member : joined.failed) outcome.released.emplace_back(member, error_reply(joined.error));
  if (!joined.error.is_ok()) {
    outcome.reply = error_reply(joined.error);
  } else if (joined.waiting()) {
    outcome.wait = wait;
  } else {
    file_rows(joined, outcome);
  }
  return outcome;
}

void Handler::file_rows(const JoinOutcome& joined, Outcome& outcome) {
  const Reply over = error_reply(Status::precondition("epoch " + std::to_string(joined.retired_epoch) + " is over"));
  if (joined.retired_epoch != 0) {
    for (WaiterId waiter : store_.drop_scopes(scope_of_epoch(joined.retired_epoch)))
      outcome.released.emplace_back(waiter, over);
  }
  Status filed;
  for (std::size_t rank = 0; rank < joined.rows.size() && filed.is_ok(); ++rank) {
    filed = store_.put(scope_of_epoch(joined.epoch), std::to_string(rank), joined.rows[rank], "").status();
  }
  const Reply reply =
      filed.is_ok() ? Reply{kOk, encode_epoch(joined.epoch)} : error_reply(filed.annotate("filing rows"));
  outcome.reply = reply;
  for (MemberId member : joined.others) outcome.released.emplace_back(member, reply);
}

Reply Handler::expire(ConnectionId connection) {
  NotYetBody body{.missing = joins_.describe_missing(connection)};
  if (!body.missing.empty()) body.first_rank = joins_.first_rank(connection);
  forget(connection);
  if (body.missing.empty()) return {kNotThere, {}};
  return {kNotYet, encode_not_yet(body)};
}

void Handler::forget(ConnectionId connection) {
  joins_.leave(connection);
  store_.unwatch(connection);
}

}  // namespace hvd::rendezvous
