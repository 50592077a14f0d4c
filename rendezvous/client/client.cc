#include "rendezvous/client/client.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <tuple>

#include "rendezvous/client/channel.h"
#include "rendezvous/client/socket_io.h"
#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_writer.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "runtime/base/fd.h"
#include "runtime/base/thread_annotations.h"

namespace hvd::rendezvous {
namespace {

constexpr Millis kFirstPause{5};
constexpr Millis kLongestPause{500};
// Beyond what the server itself may take: after that the connection is taken for dead, and another one is made.
constexpr Millis kAnswerDeadline{10000};
// A poll that would be shorter than this is not worth asking for.
constexpr Millis kShortestPoll{20};

// "30 s", "0.3 s".
std::string seconds_text(SteadyClock::duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  return text.data();
}

}  // namespace

// The mutex guards who uses which channel, not the channels themselves: a channel belongs to the thread that has taken it.
class Client::Impl {
 public:
  explicit Impl(ClientOptions options)
      : host_(options.host),
        port_(options.port),
        name_(options.name),
        instance_(random_nonce()),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        short_(channel_options(options)),
        long_(channel_options(options)) {}

  Result<std::uint64_t> join(JoinBody body, Deadline deadline);
  Status put(const Route& route, ByteSpan value, Deadline deadline);
  Result<Bytes> wait(Route route, Deadline deadline);
  Result<std::vector<std::optional<Bytes>>> get_many(GetManyBody body, Deadline deadline);
  Status erase(const Route& route, Deadline deadline);
  void cancel();

  // Also checks what no attempt would cure.
  Status check_usable() const;
  std::string place(const Route& route) const;

 private:
  struct Lane {
    explicit Lane(ChannelOptions options) : channel(std::move(options)) {}
    Channel channel;
    bool taken = false;
  };
  // A lane for the length of one call.
  class Lease {
   public:
    Lease(Impl& impl, Lane& lane) : impl_(impl), lane_(lane) {}
    ~Lease() { impl_.give_back(lane_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    Impl& impl_;
    Lane& lane_;
  };

  ChannelOptions channel_options(const ClientOptions& options) const {
    return {.host = options.host, .port = options.port, .store_key = store_key(options.secret),
            .client_name = options.name, .instance = instance_, .wake_fd = wake_.get()};
  }
  Status take(Lane& lane, const Route& route, const Deadline& deadline);
  void give_back(Lane& lane);
  Result<HttpResponse> call(Lane& lane, const Route& route, ByteSpan body, Millis server_wait, const Deadline& deadline);
  Status failure(const Route& route, const HttpResponse& response) const;
  Status pause(Millis& length, const Deadline& deadline);

  const std::string host_;
  const std::uint16_t port_;
  const std::string name_;
  const Nonce instance_;
  const Fd wake_;  // readable once cancelled
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable given_back_;
  Lane short_;  // `taken` guarded by mutex_
  Lane long_;
};

Status Client::Impl::check_usable() const {
  if (!wake_.valid()) return Status::internal("rendezvous client: no descriptor for an eventfd");
  if (port_ == 0) return Status::invalid_argument("rendezvous port is 0, expected 1..65535");
  return check_label("rendezvous client name", name_);
}

std::string Client::Impl::place(const Route& route) const {
  const std::string target = target_of(route);
  return "rendezvous " + host_and_port(host_, port_) + " " + target.substr(0, target.find('?'));
}

Status Client::Impl::take(Lane& lane, const Route& route, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const bool free = given_back_.wait_until(lock, deadline.when(), [&] { return !lane.taken || cancelled_; });
  if (cancelled_) return Status::aborted(place(route) + ": cancelled");
  if (!free) return Status::timeout(place(route) + ": other calls of this client took all the time");
  lane.taken = true;
  return Status::ok();
}

void Client::Impl::give_back(Lane& lane) {
  {
    const std::scoped_lock lock(mutex_);
    lane.taken = false;
  }
  given_back_.notify_all();
}

void Client::Impl::cancel() {
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
  }
  given_back_.notify_all();
  const std::uint64_t one = 1;
  std::ignore = write(wake_.get(), &one, sizeof(one));  // only fails when it is readable already
}

// Grows, with jitter, so that many ranks do not knock at the same moment.
Status Client::Impl::pause(Millis& length, const Deadline& deadline) {
  std::array<std::uint8_t, 1> jitter{};
  crypto::random_bytes(jitter);
  const Millis jittered = length / 2 + length * jitter[0] / 255;
  length = std::min(length * 2, kLongestPause);
  const auto until = Deadline::at(std::min(deadline.when(), SteadyClock::now() + jittered));
  const Status woken = wait_for(-1, 0, until, wake_.get());
  return woken.code() == StatusCode::kTimeout ? Status::ok() : woken;
}

// The one place that retries. An answer comes back whatever its status, but for a refusal, which is an error.
Result<HttpResponse> Client::Impl::call(Lane& lane, const Route& route, ByteSpan body, Millis server_wait,
                                        const Deadline& deadline) {
  const TimePoint start = SteadyClock::now();
  Millis pause_length = kFirstPause;
  std::string cause;
  while (true) {
    const bool reused = lane.channel.is_open();
    const auto attempt = Deadline::at(std::min(deadline.when(), SteadyClock::now() + server_wait + kAnswerDeadline));
    auto answer = lane.channel.exchange(route, body, attempt);
    if (answer.is_ok()) {
      const int status = answer.value().status;
      if (status == 200 || status == 202 || status == 404) return answer;
      return failure(route, answer.value());
    }
    const Status& error = answer.status();
    if (error.code() == StatusCode::kPeerLost) {
      cause = error.message();
    } else if (error.code() != StatusCode::kTimeout) {
      return error.annotate(place(route));
    } else if (cause.empty()) {
      cause = error.message();
    }
    if (reused && error.code() == StatusCode::kPeerLost) continue;  // it had been closed while it was idle
    if (Status woken = pause(pause_length, deadline); !woken.is_ok()) return woken.annotate(place(route));
    if (deadline.expired()) {
      return Status::timeout(place(route) + ": " + cause + " (tried for " + seconds_text(SteadyClock::now() - start) + ")");
    }
  }
}

Status Client::Impl::failure(const Route& route, const HttpResponse& response) const {
  return decode_error(response.body).annotate(place(route));
}

Result<std::uint64_t> Client::Impl::join(JoinBody body, Deadline deadline) {
  const Route route{.action = Action::kJoin, .scope = "", .key = ""};
  HVD_RETURN_IF_ERROR(take(long_, route, deadline));
  const Lease lease(*this, long_);
  const TimePoint start = SteadyClock::now();
  while (true) {
    body.wait = std::clamp(deadline.remaining() - kShortestPoll, Millis(0), kMaxLongPoll);
    auto answer = call(long_, route, encode_join(body), body.wait, deadline);
    if (!answer.is_ok()) {
      long_.channel.close();  // whatever the server holds of this join, nobody waits for it any more
      return answer.status();
    }
    if (answer.value().status == 200) return decode_epoch(answer.value().body);
    if (deadline.remaining() <= kShortestPoll) {
      long_.channel.close();
      return Status::timeout(place(route) + ": " + std::string(as_text(answer.value().body)) + " (tried for " +
                             seconds_text(SteadyClock::now() - start) + ")");
    }
  }
}

Status Client::Impl::put(const Route& route, ByteSpan value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(take(short_, route, deadline));
  const Lease lease(*this, short_);
  return call(short_, route, value, Millis(0), deadline).status();
}

Status Client::Impl::erase(const Route& route, Deadline deadline) {
  HVD_RETURN_IF_ERROR(take(short_, route, deadline));
  const Lease lease(*this, short_);
  return call(short_, route, {}, Millis(0), deadline).status();
}

Result<Bytes> Client::Impl::wait(Route route, Deadline deadline) {
  HVD_RETURN_IF_ERROR(take(long_, route, deadline));
  const Lease lease(*this, long_);
  const TimePoint start = SteadyClock::now();
  while (true) {
    route.wait = std::clamp(deadline.remaining() - kShortestPoll, Millis(0), kMaxLongPoll);
    HVD_ASSIGN_OR_RETURN(HttpResponse answer, call(long_, route, {}, route.wait, deadline));
    if (answer.status == 200) return std::move(answer.body);
    if (deadline.remaining() <= kShortestPoll) {
      return Status::timeout(place(route) + ": nobody has put this key (waited for " +
                             seconds_text(SteadyClock::now() - start) + ")");
    }
  }
}

Result<std::vector<std::optional<Bytes>>> Client::Impl::get_many(GetManyBody body, Deadline deadline) {
  const Route route{.action = Action::kGetMany, .scope = "", .key = ""};
  HVD_RETURN_IF_ERROR(take(short_, route, deadline));
  const Lease lease(*this, short_);
  const std::vector<std::string> keys = std::move(body.keys);
  std::vector<std::optional<Bytes>> values;
  while (values.size() < keys.size()) {
    const auto from = keys.begin() + static_cast<std::ptrdiff_t>(values.size());
    const auto count = static_cast<std::ptrdiff_t>(std::min(keys.size() - values.size(), kMaxKeysPerRequest));
    body.keys.assign(from, from + count);
    HVD_ASSIGN_OR_RETURN(const HttpResponse answer, call(short_, route, encode_get_many(body), Millis(0), deadline));
    HVD_ASSIGN_OR_RETURN(auto part, decode_values(answer.body));
    if (part.empty() || part.size() > body.keys.size()) {
      return Status::internal(place(route) + ": " + std::to_string(part.size()) + " values for " +
                              std::to_string(body.keys.size()) + " keys");
    }
    std::ranges::move(part, std::back_inserter(values));
  }
  return values;
}

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

Result<std::uint64_t> Client::join(const std::string& group, int rank, int size, ByteSpan row, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->check_usable());
  HVD_RETURN_IF_ERROR(check_label("group", group));
  if (row.size() > kMaxRowBytes) {
    return Status::invalid_argument("the row has " + std::to_string(row.size()) + " bytes; at most " +
                                    std::to_string(kMaxRowBytes) + " are allowed");
  }
  return impl_->join({.group = group, .rank = rank, .size = size, .nonce = random_nonce(), .row = Bytes(row.begin(), row.end())},
                     deadline);
}

namespace {

Result<Route> key_route(Action action, const std::string& scope, const std::string& key) {
  HVD_RETURN_IF_ERROR(check_scope(scope));
  HVD_RETURN_IF_ERROR(check_key(key));
  return Route{.action = action, .scope = scope, .key = key};
}

}  // namespace

Status Client::put(const std::string& scope, const std::string& key, ByteSpan value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->check_usable());
  HVD_ASSIGN_OR_RETURN(const Route route, key_route(Action::kPut, scope, key));
  if (value.size() > kMaxValueBytes) {
    return Status::invalid_argument("value of key " + scope + "/" + key + " has " + std::to_string(value.size()) +
                                    " bytes; at most " + std::to_string(kMaxValueBytes) + " are allowed");
  }
  return impl_->put(route, value, deadline);
}

Result<Bytes> Client::wait(const std::string& scope, const std::string& key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->check_usable());
  HVD_ASSIGN_OR_RETURN(const Route route, key_route(Action::kGet, scope, key));
  return impl_->wait(route, deadline);
}

Result<std::vector<std::optional<Bytes>>> Client::get_many(const std::string& scope, std::vector<std::string> keys,
                                                           Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->check_usable());
  HVD_RETURN_IF_ERROR(check_scope(scope));
  for (const std::string& key : keys) HVD_RETURN_IF_ERROR(check_key(key));
  return impl_->get_many({.scope = scope, .keys = std::move(keys)}, deadline);
}

Status Client::erase(const std::string& scope, const std::string& key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(impl_->check_usable());
  HVD_ASSIGN_OR_RETURN(const Route route, key_route(Action::kErase, scope, key));
  return impl_->erase(route, deadline);
}

void Client::cancel() { impl_->cancel(); }

}  // namespace hvd::rendezvous
