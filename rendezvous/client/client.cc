#include "rendezvous/client/client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/client/caller.h"
#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"

namespace hvd::rendezvous {
namespace {

// A poll that would be shorter than this is not worth asking for.
constexpr Millis kShortestPoll{20};

// How long the server is asked to wait, so that its answer arrives before the deadline.
Millis poll_length(const Deadline& deadline, Millis longest) {
  return std::clamp(deadline.remaining() - kShortestPoll, Millis(0), longest);
}

Result<Route> key_route(Action action, const std::string& scope, const std::string& key) {
  HVD_RETURN_IF_ERROR(check_scope(scope));
  HVD_RETURN_IF_ERROR(check_key(key));
  return Route{.action = action, .scope = scope, .key = key};
}

Route fixed_route(Action action) { return {.action = action, .scope = "", .key = ""}; }

}  // namespace

// The calls, their polls and their parts, on top of what Caller does for each. Thread-safe.
class Client::Impl {
 public:
  explicit Impl(const ClientOptions& options) : caller_(options), long_poll_(options.long_poll) {}

  Caller& caller() { return caller_; }
  Result<std::string> connect(const Deadline& deadline);
  Result<JoinAnswer> join(JoinBody body, const Deadline& deadline, OnSlow on_slow);
  Status put(const Route& route, ByteSpan value, const Deadline& deadline);
  Result<Bytes> wait(Route route, const Deadline& deadline);
  Result<std::vector<std::optional<Bytes>>> get_many(const std::string& scope, const std::vector<std::string>& keys,
                                                     const Deadline& deadline);

 private:
  Caller caller_;
  const Millis long_poll_;
};

// On the connection that join() will use.
Result<std::string> Client::Impl::connect(const Deadline& deadline) {
  const Route route = fixed_route(Action::kJoin);
  HVD_ASSIGN_OR_RETURN(Caller::Lease lease, caller_.take(Caller::Lane::kLong, route, deadline));
  return caller_.connect(lease, route, deadline);
}

Result<JoinAnswer> Client::Impl::join(JoinBody body, const Deadline& deadline, OnSlow on_slow) {
  const Route route = fixed_route(Action::kJoin);
  HVD_ASSIGN_OR_RETURN(Caller::Lease lease, caller_.take(Caller::Lane::kLong, route, deadline));
  const TimePoint start = SteadyClock::now();
  while (true) {
    body.wait = poll_length(deadline, long_poll_);
    const auto answer = caller_.call(lease, route, encode_join(body), body.wait, deadline);
    if (answer.is_ok() && answer.value().status == 200) return decode_join_answer(answer.value().body);
    const auto not_yet = answer.is_ok() ? decode_not_yet(answer.value().body) : answer.status();
    if (not_yet.is_ok() && deadline.remaining() > kShortestPoll) {
      if (on_slow && not_yet.value().first_slot == body.seat.process.slot)
        std::exchange(on_slow, {})(not_yet.value().missing);
      continue;
    }
    lease.hang_up();  // whatever the server holds of this join, nobody waits for it any more
    if (!not_yet.is_ok()) return not_yet.status();
    return Status::timeout(caller_.request_name(route) + ": " + not_yet.value().missing + " (tried for " +
                           seconds_text(SteadyClock::now() - start) + ")");
  }
}

Status Client::Impl::put(const Route& route, ByteSpan value, const Deadline& deadline) {
  HVD_ASSIGN_OR_RETURN(Caller::Lease lease, caller_.take(Caller::Lane::kShort, route, deadline));
  return caller_.call(lease, route, value, Millis(0), deadline).status();
}

Result<Bytes> Client::Impl::wait(Route route, const Deadline& deadline) {
  HVD_ASSIGN_OR_RETURN(Caller::Lease lease, caller_.take(Caller::Lane::kLong, route, deadline));
  const TimePoint start = SteadyClock::now();
  while (true) {
    route.wait = poll_length(deadline, long_poll_);
    HVD_ASSIGN_OR_RETURN(HttpResponse answer, caller_.call(lease, route, {}, route.wait, deadline));
    if (answer.status == 200) return std::move(answer.body);
    if (deadline.remaining() <= kShortestPoll) {
      return Status::timeout(caller_.request_name(route) + ": nobody has put this key (waited for " +
                             seconds_text(SteadyClock::now() - start) + ")");
    }
  }
}

Result<std::vector<std::optional<Bytes>>> Client::Impl::get_many(const std::string& scope,
                                                                 const std::vector<std::string>& keys,
                                                                 const Deadline& deadline) {
  const Route route = fixed_route(Action::kGetMany);
  HVD_ASSIGN_OR_RETURN(Caller::Lease lease, caller_.take(Caller::Lane::kShort, route, deadline));
  std::vector<std::optional<Bytes>> values;
  while (values.size() < keys.size()) {
    const auto from = keys.begin() + static_cast<std::ptrdiff_t>(values.size());
    const auto count = std::min(keys.size() - values.size(), kMaxKeysPerRequest);
    const GetManyBody body{.scope = scope, .keys = {from, from + static_cast<std::ptrdiff_t>(count)}};
    HVD_ASSIGN_OR_RETURN(const HttpResponse answer,
                         caller_.call(lease, route, encode_get_many(body), Millis(0), deadline));
    HVD_ASSIGN_OR_RETURN(auto part, decode_values(answer.body));
    if (part.empty() || part.size() > count) {
      return Status::internal(caller_.request_name(route) + ": " + std::to_string(part.size()) + " values for " +
                              std::to_string(count) + " keys");
    }
    std::ranges::move(part, std::back_inserter(values));
  }
  return values;
}

Client::Client(const ClientOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

Result<std::string> Client::connect(Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->caller().check_usable());
  return impl_->connect(deadline);
}

Result<JoinAnswer> Client::join(const Seat& seat, const RankNumbers& environment, ByteSpan row, Deadline deadline,
                                const OnSlow& on_slow, std::uint64_t progress) {
  HVD_RETURN_IF_ERROR(impl_->caller().check_usable());
  if (row.size() > kMaxRowBytes) {
    return Status::invalid_argument("the row has " + std::to_string(row.size()) + " bytes; at most " +
                                    std::to_string(kMaxRowBytes) + " are allowed");
  }
  return impl_->join({.seat = seat,
                      .environment = environment,
                      .progress = progress,
                      .nonce = crypto::random_nonce<Nonce>(),
                      .row = Bytes(row.begin(), row.end())},
                     deadline, on_slow);
}

Status Client::put(const std::string& scope, const std::string& key, ByteSpan value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->caller().check_usable());
  HVD_ASSIGN_OR_RETURN(const Route route, key_route(Action::kPut, scope, key));
  if (value.size() > kMaxValueBytes) {
    return Status::invalid_argument("value of key " + scope + "/" + key + " has " + std::to_string(value.size()) +
                                    " bytes; at most " + std::to_string(kMaxValueBytes) + " are allowed");
  }
  return impl_->put(route, value, deadline);
}

Result<Bytes> Client::wait(const std::string& scope, const std::string& key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->caller().check_usable());
  HVD_ASSIGN_OR_RETURN(const Route route, key_route(Action::kGet, scope, key));
  return impl_->wait(route, deadline);
}

Result<std::vector<std::optional<Bytes>>> Client::get_many(const std::string& scope,
                                                           const std::vector<std::string>& keys, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->caller().check_usable());
  HVD_RETURN_IF_ERROR(check_scope(scope));
  for (const std::string& key : keys) HVD_RETURN_IF_ERROR(check_key(key));
  return impl_->get_many(scope, keys, deadline);
}

void Client::cancel() { impl_->caller().cancel(); }

}  // namespace hvd::rendezvous
