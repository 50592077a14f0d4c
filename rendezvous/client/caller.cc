#include "rendezvous/client/caller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/names.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {
namespace {

constexpr Millis kFirstPause{5};
constexpr Millis kLongestPause{500};
// Beyond what the server itself may take: after that the connection is taken for dead, and another
// one is made.
constexpr Millis kAnswerDeadline{10000};
// How much later than the call's deadline the answer to a poll may be.
constexpr Millis kLateAnswer{2000};

ChannelOptions channel_options(const ClientOptions& options, const Nonce& instance, int wake_fd) {
  return {.host = options.host,
          .port = options.port,
          .store_key = store_key(options.secret),
          .client_name = options.name,
          .instance = instance,
          .wake_fd = wake_fd};
}

}  // namespace

Caller::Caller(const ClientOptions& options)
    : host_(options.host),
      port_(options.port),
      name_(options.name),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      short_{.channel = Channel(channel_options(options, random_nonce(), wake_.get()))},
      long_{.channel = Channel(short_.channel.options())} {}

Status Caller::check_usable() const {
  if (!wake_.valid()) return Status::internal("rendezvous client: no descriptor for an eventfd");
  if (port_ == 0) return Status::invalid_argument("rendezvous port is 0, expected 1..65535");
  return check_label("rendezvous client name", name_);
}

std::string Caller::place(const Route& route) const {
  const std::string target = target_of(route);
  return "rendezvous " + host_and_port(host_, port_) + " " + target.substr(0, target.find('?'));
}

Result<Caller::Lease> Caller::take(Lane lane, const Route& route, const Deadline& deadline) {
  Slot& slot = lane == Lane::kShort ? short_ : long_;
  std::unique_lock lock(mutex_);
  const bool free = given_back_.wait_until(lock, deadline.when(), [&] { return !slot.taken || cancelled_; });
  if (cancelled_) return Status::aborted(place(route) + ": cancelled");
  if (!free) return Status::timeout(place(route) + ": other calls of this client took all the time");
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
  const TimePoint start = SteadyClock::now();
  Millis pause_length = kFirstPause;
  std::string cause;
  while (true) {
    const bool reused = channel.is_open();
    // The server of a poll answers just before the deadline and says who is missing; that answer is worth waiting for a
    // little longer, because it is late when the machine is busy.
    const Millis late = server_wait > Millis(0) ? kLateAnswer : Millis(0);
    const auto attempt =
        Deadline::at(std::min(deadline.when() + late, SteadyClock::now() + server_wait + kAnswerDeadline));
    auto answer = channel.exchange(route, body, attempt);
    if (answer.is_ok()) {
      const int status = answer.value().status;
      if (status == 200 || status == 202 || status == 404) return answer;
      return decode_error(answer.value().body).annotate(place(route));
    }
    const Status error = answer.status();
    const bool lost = error.code() == StatusCode::kPeerLost;
    if (!lost && error.code() != StatusCode::kTimeout) return error.annotate(place(route));
    if (lost || cause.empty()) cause = error.message();
    if (lost && reused) continue;  // it had been closed while it was idle
    if (Status woken = pause(pause_length, deadline); !woken.is_ok()) return woken.annotate(place(route));
    if (deadline.expired()) {
      return Status::timeout(place(route) + ": " + cause + " (tried for " + seconds_text(SteadyClock::now() - start) +
                             ")");
    }
  }
}

// Grows, with jitter, so that many ranks do not knock at the same moment.
Status Caller::pause(Millis& length, const Deadline& deadline) {
  std::array<std::uint8_t, 1> jitter{};
  crypto::random_bytes(jitter);
  const Millis jittered = length / 2 + length * jitter[0] / 255;
  length = std::min(length * 2, kLongestPause);
  const auto until = Deadline::at(std::min(deadline.when(), SteadyClock::now() + jittered));
  const Status woken = wait_for_socket(-1, 0, until, wake_.get());
  return woken.code() == StatusCode::kTimeout ? Status::ok() : woken;
}

std::string seconds_text(SteadyClock::duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  return text.data();
}

}  // namespace hvd::rendezvous
