#include "runtime/transport/route_trials.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstddef>
#include <utility>

#include "runtime/base/thread.h"

namespace hvd::transport {
namespace {

constexpr std::size_t kTriesAtOnce = 16;

struct Trial {
  RouteTry result;
  Endpoint endpoint;
};

std::chrono::microseconds round_trip_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

RouteTry::Outcome outcome_of(Connector::Outcome outcome) {
  switch (outcome) {
    case Connector::Outcome::kGone: return RouteTry::Outcome::kNoConnection;
    case Connector::Outcome::kHungUp: return RouteTry::Outcome::kHungUp;
    case Connector::Outcome::kRefused: return RouteTry::Outcome::kRefused;
    case Connector::Outcome::kLater: break;
  }
  return RouteTry::Outcome::kNoAnswer;
}

// What a peer has no address for is an answer of its own, and not tried.
void add_trials(const RouteTrials& trials, const TrialPeer& peer, std::vector<Trial>& all) {
  RouteTry none{.rank = peer.rank, .address = "", .interface = "", .error = ""};
  none.outcome = RouteTry::Outcome::kNoConnection;
  if (!peer.row.is_ok()) {
    none.error = peer.row.status().message();
    all.push_back({std::move(none), {}});
    return;
  }
  const auto endpoints = trials.connector.candidates(peer.row.value());
  if (!endpoints.is_ok() || endpoints.value().empty()) {
    none.error = endpoints.is_ok() ? "none of its addresses can be one for others:" : endpoints.status().message();
    for (const Endpoint& endpoint : peer.row.value().endpoints) none.error += " " + endpoint.to_string();
    all.push_back({std::move(none), {}});
    return;
  }
  for (const Endpoint& endpoint : endpoints.value()) {
    RouteTry todo{
        .rank = peer.rank, .address = endpoint.address.to_string(), .interface = endpoint.interface, .error = ""};
    all.push_back({std::move(todo), endpoint});
  }
}

void try_one(const RouteTrials& trials, Trial& trial) {
  if (trial.result.address.empty()) return;
  if (trials.deadline.expired()) {
    trial.result.error = "not tried: too many others gave no answer";
    return;
  }
  Hello hello = trials.hello;
  hello.to_rank = trial.result.rank;
  const Deadline own = Deadline::after(trials.limit);
  std::vector<Connector::Attempt> last;
  const auto stream = trials.connector.connect_any(std::span(&trial.endpoint, 1), hello, trials.key,
                                                   own.when() < trials.deadline.when() ? own : trials.deadline, last);
  if (stream.is_ok()) {
    trial.result.outcome = RouteTry::Outcome::kReached;
    trial.result.round_trip = round_trip_of(stream.value().get());
    return;
  }
  if (!last.empty()) {
    trial.result.outcome = outcome_of(last.back().outcome);
    trial.result.error = last.back().reason;
  }
  if (trial.result.error.empty()) trial.result.error = stream.status().message();
}

}  // namespace

std::vector<RouteTry> try_routes(const RouteTrials& trials, const std::vector<TrialPeer>& peers) {
  std::vector<Trial> all;
  for (const TrialPeer& peer : peers) add_trials(trials, peer, all);
  for_each_at_once("hvd-route", all.size(), kTriesAtOnce, [&](std::size_t i) { try_one(trials, all[i]); });
  std::vector<RouteTry> results;
  results.reserve(all.size());
  for (Trial& trial : all) results.push_back(std::move(trial.result));
  return results;
}

}  // namespace hvd::transport

namespace hvd {

const char* route_outcome_name(RouteTry::Outcome outcome) {
  switch (outcome) {
    case RouteTry::Outcome::kReached: return "reached";
    case RouteTry::Outcome::kNoConnection: return "no connection";
    case RouteTry::Outcome::kHungUp: return "hung up";
    case RouteTry::Outcome::kRefused: return "refused";
    case RouteTry::Outcome::kNoAnswer: return "no answer";
  }
  return "";
}

}  // namespace hvd
