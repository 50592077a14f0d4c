#include "starters/meeting.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/client/client.h"
#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/split.h"
#include "runtime/base/thread.h"
#include "runtime/base/wipe.h"
#include "runtime/transport/net/route.h"
#include "runtime/transport/net/sockets.h"

namespace hvd::starters {
namespace {

using transport::AddressRow;
using transport::Endpoint;
using transport::HostIdentity;
using transport::InterfaceAddress;
using transport::SocketAddress;

// A server that is there answers at once; of several addresses, one that drops packets must not take all the time. All
// are tried for a moment first, then longer.
constexpr Millis kFirstAttempt{300};
constexpr Millis kLongestAttempt{5000};
constexpr Millis kPause{100};  // before the same places are tried again
// Of an announcement that may be an earlier job's, which is nobody's business but rank 0's.
constexpr Millis kSignOfLife{500};
// Between requests a rank is silent for as long as it trains; whose host dies is noticed by the kernel.
constexpr Millis kNeverIdle{std::chrono::hours(24 * 365)};
// What still runs when a job ends is over by then, or was given up.
constexpr Millis kLinger{10000};
constexpr const char* kAlone = "; HOROVOD_IGNORE_STARTER=1 makes each process a job of its own";

// Where rank 0 listens: where all ranks are on one host, there alone; else on the interfaces that the user chose, or on
// all, because the starter does not say where the others are. Nobody gets anything there without the secret.
Result<std::vector<InterfaceAddress>> addresses_to_listen_on(const config::RuntimeConfig& config) {
  if (config.iface.empty() && is_on_one_host(config)) {
    return std::vector<InterfaceAddress>{{"lo", SocketAddress::loopback(0), 8}};
  }
  HVD_ASSIGN_OR_RETURN(auto all, transport::list_interface_addresses());
  std::vector<InterfaceAddress> chosen;
  for (const std::string_view name : split(config.iface, ',')) {
    std::ranges::copy_if(all, std::back_inserter(chosen), [&](const auto& a) { return a.interface == name; });
  }
  if (chosen.empty() && !config.iface.empty()) {
    return Status::invalid_argument("HOROVOD_GLOO_IFACE=" + config.iface + ": no such interface is up here");
  }
  return config.iface.empty() ? all : chosen;
}

// The places at which this process may reach the server, the best first.
std::vector<Endpoint> places_of(const AddressRow& server) {
  const auto own = transport::list_interface_addresses();
  return transport::order_candidates(server, HostIdentity::of_this_process(),
                                     own.is_ok() ? own.value() : std::vector<InterfaceAddress>(),
                                     transport::route_exists);
}

// Whether the server at a place has this secret.
Status try_place(const Endpoint& place, const crypto::Secret& secret, bool tls, const Deadline& deadline,
                 const std::stop_token& stop) {
  rendezvous::Client client({.host = place.address.ip_text(),
                             .port = place.address.port(),
                             .secret = secret,
                             .tls = tls,
                             .patience_with_lost_server = Millis(0)});
  const std::stop_callback cancel(stop, [&] { client.cancel(); });
  return client.connect(deadline).status();
}

bool answers(const std::string& text) {
  const auto announced = decode_announcement(text);
  if (!announced.is_ok()) return false;
  const auto places = places_of(announced.value().server);
  return std::ranges::any_of(places, [&](const Endpoint& place) {
    return try_place(place, announced.value().secret, announced.value().tls, Deadline::after(kSignOfLife), {}).is_ok();
  });
}

std::string started_text(const config::RuntimeConfig& config) {
  return "rank " + std::to_string(config.rank) + " of " + std::to_string(config.size) + ", which " +
         config.started_by->program + " started";
}

Status with_context(const config::RuntimeConfig& config, const Status& status) {
  return status.annotate(started_text(config));
}

// Says `text` when it lives for so long.
std::jthread late_notice(const std::string& text, Millis after) {
  return start_thread("hvd-late", [text, after](const std::stop_token& stop) {
    transport::Cancel end;
    const std::stop_callback on_end(stop, [&] { end.cancel(); });
    if (pause_for(after, Deadline::after(after), end.fd()).is_ok()) HVD_LOG(kWarning, text);
  });
}

}  // namespace

// Of a rank that is not 0: looks where the announcement says, until somebody there has its secret.
class Meeting::Search {
 public:
  Search(const config::RuntimeConfig& config, const Deadline& deadline, const std::stop_token& stop, int wake_fd)
      : config_(config), deadline_(deadline), stop_(stop), wake_fd_(wake_fd) {}

  Status run(Channel& channel) {
    for (;;) {
      HVD_ASSIGN_OR_RETURN(std::string text, channel.find(deadline_, wake_fd_));
      const auto found = decode_announcement(text);
      wipe(text);
      if (found.is_ok() && found.value().size == config_.size) {
        if (try_all(found.value())) return check_tls(found.value());
      } else {
        last_ = found.is_ok() ? Status::precondition("it is for " + std::to_string(found.value().size) + " ranks")
                              : found.status();
      }
      HVD_RETURN_IF_ERROR(pause_for(kPause, deadline_, wake_fd_));
      if (deadline_.expired()) {
        return Status::timeout("rank 0 does not answer where " + channel.name() + " says: " + last_.message());
      }
    }
  }

  const Announcement& announcement() const { return *announcement_; }
  const Endpoint& place() const { return place_; }

 private:
  Status check_tls(const Announcement& found) const {
    if (found.tls == config_.tls) return Status::ok();
    return Status::precondition(std::string("TLS is ") + (found.tls ? "on" : "off") + " in rank 0 and " +
                                (config_.tls ? "on" : "off") + " here; HOROVOD_TLS must be the same in all processes");
  }

  bool try_all(const Announcement& found) {
    const auto places = places_of(found.server);
    if (places.empty()) last_ = Status::peer_lost("no address of " + found.server.host.host_name + " can be reached");
    for (const Endpoint& place : places) {
      const auto until = Deadline::at(std::min(deadline_.when(), SteadyClock::now() + attempt_));
      last_ = try_place(place, found.secret, found.tls, until, stop_);
      if (!last_.is_ok()) continue;
      announcement_ = found;
      place_ = place;
      return true;
    }
    attempt_ = std::min(attempt_ * 2, kLongestAttempt);
    return false;
  }

  const config::RuntimeConfig& config_;
  const Deadline deadline_;
  const std::stop_token stop_;
  const int wake_fd_;
  Millis attempt_ = kFirstAttempt;
  Status last_ = Status::peer_lost("nothing tried");
  std::optional<Announcement> announcement_;
  Endpoint place_;
};

Result<std::unique_ptr<Meeting>> Meeting::host(const config::RuntimeConfig& config, std::unique_ptr<Channel> channel,
                                               const Deadline& deadline, int wake_fd) {
  HVD_ASSIGN_OR_RETURN(const auto addresses, addresses_to_listen_on(config));
  std::vector<std::string> listen;
  listen.reserve(addresses.size());
  for (const InterfaceAddress& address : addresses) listen.push_back(address.address.ip_text());
  std::unique_ptr<Meeting> meeting(new Meeting(std::move(channel), crypto::Secret::random()));
  HVD_ASSIGN_OR_RETURN(meeting->server_,
                       rendezvous::Server::start({.secret = meeting->secret_,
                                                  .plan = rendezvous::StaticPlan::of_size(config.size),
                                                  .listen_addresses = listen,
                                                  .tls = config.tls,
                                                  .ports = config.ports,
                                                  .idle_deadline = kNeverIdle}));
  meeting->port_ = meeting->server_->port();
  AddressRow row{.host = HostIdentity::of_this_process(), .endpoints = {}};
  for (const InterfaceAddress& address : addresses) {
    row.endpoints.push_back({address.address, address.interface});
    row.endpoints.back().address.set_port(meeting->port_);
  }
  meeting->address_ = places_of(row).front().address.ip_text();
  std::string text =
      encode({.size = config.size, .tls = config.tls, .secret = meeting->secret_, .server = std::move(row)});
  const Status announced = meeting->channel_->announce(text, deadline, wake_fd);
  wipe(text);
  HVD_RETURN_IF_ERROR(announced);
  return meeting;
}

Result<std::unique_ptr<Meeting>> Meeting::find(const config::RuntimeConfig& config, std::unique_ptr<Channel> channel,
                                               const Deadline& deadline, const std::stop_token& stop, int wake_fd) {
  Search search(config, deadline, stop, wake_fd);
  HVD_RETURN_IF_ERROR(search.run(*channel));
  channel->forget();  // what it has found holds the secret
  std::unique_ptr<Meeting> meeting(new Meeting(std::move(channel), search.announcement().secret));
  meeting->address_ = search.place().address.ip_text();
  meeting->port_ = search.place().address.port();
  return meeting;
}

Result<std::unique_ptr<Meeting>> Meeting::hold(const config::RuntimeConfig& config, const std::stop_token& stop,
                                               Millis late_after) {
  const Deadline deadline =
      Deadline::after(config.join_timeout.count() != 0 ? config.join_timeout : config.gloo_timeout);
  transport::Cancel cancel;
  const std::stop_callback on_stop(stop, [&] { cancel.cancel(); });
  std::jthread late = late_notice(
      started_text(config) + ", still waits for its process manager to answer by PMIx" + kAlone, late_after);
  auto channel = open_channel(config, answers, deadline, cancel.fd());
  if (channel.status().code() == StatusCode::kPrecondition) return channel.status();  // says who we are
  if (!channel.is_ok()) return with_context(config, channel.status());
  late = late_notice(started_text(config) + ", still waits for " + (config.rank == 0 ? "the others" : "rank 0") +
                         " by " + channel.value()->name() + kAlone,
                     late_after);
  auto meeting = config.rank == 0 ? host(config, std::move(channel).value(), deadline, cancel.fd())
                                  : find(config, std::move(channel).value(), deadline, stop, cancel.fd());
  if (!meeting.is_ok()) return with_context(config, meeting.status());
  meeting.value()->is_on_several_hosts_ = !is_on_one_host(config);
  HVD_LOG(kInfo, "found the job", log_field("starter", config.started_by->program),
          log_field("rendezvous", meeting.value()->address_), log_field("port", meeting.value()->port_));
  return meeting;
}

Meeting::~Meeting() { channel_->forget(); }

void Meeting::apply(config::RuntimeConfig& config) const {
  config.rendezvous_addr = address_;
  config.rendezvous_port = port_;
  config.is_on_several_hosts = is_on_several_hosts_;
  // Hosts are told apart by name too, and a starter that says none has them by their own.
  if (config.hostname == config::RuntimeConfig{}.hostname) {
    config.hostname = HostIdentity::of_this_process().host_name;
  }
}

void Meeting::leave() {
  channel_->leave();
  if (server_ == nullptr) return;
  if (!server_->wait_until_deserted(Deadline::after(kLinger))) {
    HVD_LOG(kInfo, "rank 0 ends while others still have connections to its rendezvous");
  }
  const std::string limits = server_->stats().limits_hit();
  if (!limits.empty()) HVD_LOG(kInfo, "the rendezvous server turned clients away", log_field("counts", limits));
}

}  // namespace hvd::starters
