#include "rendezvous/client/caller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <tuple>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/names.h"
#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {
namespace {

constexpr Millis kFirstPause{5};
constexpr Millis kLongestPause{500};
// A name that is wrong or a server that never comes would otherwise be a long silence before the error.
constexpr Millis kSilentAttempts{10000};
// Beyond what the server itself may take: after that the connection is taken for dead, and another
// one is made.
constexpr Millis kAnswerDeadline{10000};
// How much later than the call's deadline the answer to a poll may be.
constexpr Millis kLateAnswer{2000};

ChannelOptions channel_options(const ClientOptions& options, int wake_fd) {
  std::optional<crypto::Secret> tls;
  if (options.tls) tls = tls_key(options.secret);
  return {.host = options.host,
          .port = options.port,
          .store_key = store_key(options.secret),
          .tls_key = std::move(tls),
          .wake_fd = wake_fd};
}

// A host name or a numeric address: it also stands in the head of each request.
bool is_host(std::string_view text) {
  constexpr std::size_t kLongestName = 253;
  const auto is_legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._:%").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, is_legal);
}

}  // namespace

Caller::Caller(const ClientOptions& options)
    : host_(options.host),
      port_(options.port),
      patience_(options.patience_with_lost_server),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      short_{.channel = Channel(channel_options(options, wake_.get()))},
      long_{.channel = Channel(short_.channel.options())} {}

Status Caller::check_usable() const {
  if (!wake_.valid()) return Status::internal("rendezvous client: no descriptor for an eventfd");
  if (port_ == 0) return Status::invalid_argument("rendezvous port is 0, expected 1..65535");
  if (is_host(host_)) return Status::ok();
  return Status::invalid_argument("rendezvous address \"" + printable(host_) +
                                  "\" is neither the name nor the numeric address of a host");
}

std::string Caller::request_name(const Route& route) const {
  const std::string target = target_of(route);
  return "rendezvous " + host_and_port(host_, port_) + " " + target.substr(0, target.find('?'));
}

Result<Caller::Lease> Caller::take(Lane lane, const Route& route, const Deadline& deadline) {
  Slot& slot = lane == Lane::kShort ? short_ : long_;
  std::unique_lock lock(mutex_);
  const bool free = given_back_.wait_until(lock, deadline.when(), [&] { return !slot.taken || cancelled_; });
  if (cancelled_) return Status::aborted(request_name(route) + ": cancelled");
  if (!free) return Status::timeout(request_name(route) + ": other calls of this client took all the time");
  slot.taken = true;
  return Lease(*this, slot);
}

Caller::Lease::~Lease() {
  if (slot_ != nullptr) caller_->give_back(*slot_);
}

void Caller::give_back(Slot& slot) {
  {
    const std::scoped_lock lock(mutex_);
    slot.taken = false;
  }
  given_back_.notify_all();
}

void Caller::cancel() {
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
  }
  given_back_.notify_all();
  const std::uint64_t one = 1;
  std::ignore = write(wake_.get(), &one, sizeof(one));  // only fails when it is readable already
}

Result<HttpResponse> Caller::call(Lease& lease, const Route& route, ByteSpan body, Millis server_wait,
                                  const Deadline& deadline) {
  Channel& channel = lease.slot_->channel;
  std::optional<HttpResponse> answer;
  HVD_RETURN_IF_ERROR(repeat(channel, route, server_wait, deadline, [&](const Deadline& attempt) -> Status {
    HVD_ASSIGN_OR_RETURN(answer, channel.exchange(route, body, attempt));
    return Status::ok();
  }));
  const int status = answer->status;
  if (status == 200 || status == 202 || status == 404) return *std::move(answer);
  return decode_error(answer->body).annotate(request_name(route));
}

Result<std::string> Caller::connect(Lease& lease, const Route& route, const Deadline& deadline) {
  Channel& channel = lease.slot_->channel;
  HVD_RETURN_IF_ERROR(
      repeat(channel, route, Millis(0), deadline, [&](const Deadline& attempt) { return channel.connect(attempt); }));
  return channel.server_address();
}

Status Caller::repeat(Channel& channel, const Route& route, Millis server_wait, const Deadline& deadline,
                      const std::function<Status(const Deadline&)>& attempt) {
  const TimePoint start = SteadyClock::now();
  Millis pause_length = kFirstPause;
  std::string cause;
  bool warned = false;
  bool was_garbled = false;
  TimePoint lost_since = TimePoint::max();  // the first of the failures in a row that mean a lost server
  while (true) {
    const bool reused = channel.is_open();
    // The server of a poll answers just before the deadline and says who is missing; that answer is worth waiting for a
    // little longer, because it is late when the machine is busy.
    const Millis late = server_wait > Millis(0) ? kLateAnswer : Millis(0);
    Status error =
        attempt(Deadline::at(std::min(deadline.when() + late, SteadyClock::now() + server_wait + kAnswerDeadline)));
    if (error.is_ok()) return error;
    const bool lost = error.code() == StatusCode::kPeerLost;
    // A bit may have flipped on the way; where the keys differ the next attempt says the same.
    if (!lost && channel.may_be_garbled() && !std::exchange(was_garbled, true)) continue;
    if (!lost && error.code() != StatusCode::kTimeout) return error.annotate(request_name(route));
    if (lost || cause.empty()) cause = error.message();
    if (lost && reused) continue;  // it had been closed while it was idle
    lost_since = lost ? std::min(lost_since, SteadyClock::now()) : TimePoint::max();
    if (lost && patience_ && SteadyClock::now() - lost_since > *patience_) {
      return Status::peer_lost(request_name(route) + ": the server has ended: " + cause);
    }
    if (Status woken = pause(pause_length, deadline); !woken.is_ok()) return woken.annotate(request_name(route));
    if (deadline.expired()) {
      return Status::timeout(request_name(route) + ": " + cause + " (tried for " +
                             seconds_text(SteadyClock::now() - start) + ")");
    }
    if (SteadyClock::now() - start > kSilentAttempts && !std::exchange(warned, true)) {
      HVD_LOG(kWarning, request_name(route), ": ", cause, "; tried again for ", seconds_text(deadline.remaining()));
    }
  }
}

// Grows, with jitter, so that many ranks do not connect in the same moment.
Status Caller::pause(Millis& length, const Deadline& deadline) {
  std::array<std::uint8_t, 1> jitter{};
  crypto::random_bytes(jitter);
  const Millis jittered = length / 2 + length * jitter[0] / 255;
  length = std::min(length * 2, kLongestPause);
  return pause_for(jittered, deadline, wake_.get());
}

std::string seconds_text(SteadyClock::duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  return text.data();
}

}  // namespace hvd::rendezvous
