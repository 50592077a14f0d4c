#include "runtime/transport/auth/connector.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"
#include "runtime/transport/net/route.h"

namespace hvd::transport {
namespace {

constexpr int kRoundsWithoutListener = 3;  // a listener outlives its row: when nobody answers, the process is gone
// When somebody accepts and hangs up: it is busy (its word for that can be lost), or another program, which never ends.
constexpr int kRoundsOfHangingUp = 20;
constexpr Millis kRoundPause{50};

Deadline earlier(Deadline a, Deadline b) { return a.when() < b.when() ? a : b; }

}  // namespace

Result<std::vector<Endpoint>> Connector::candidates(const AddressRow& peer) const {
  HVD_ASSIGN_OR_RETURN(const auto own, list_interface_addresses());
  return order_candidates(peer, self_, own, route_exists);
}

Result<Stream> Connector::connect(const AddressRow& peer, const Hello& hello, const crypto::Secret& key,
                                  Deadline deadline) const {
  const std::string what =
      "cannot connect to rank " + std::to_string(hello.to_rank) + " on host " + peer.host.host_name;
  HVD_ASSIGN_OR_RETURN(const auto endpoints, candidates(peer));
  if (endpoints.empty()) {
    std::string listed;
    for (const Endpoint& endpoint : peer.endpoints) listed += " " + endpoint.to_string();
    return Status::precondition(what + ": none of its addresses can be reached from host " + self_.host_name + ":" +
                                (listed.empty() ? " it has none" : listed) +
                                "; choose interfaces that connect the hosts (--network-interfaces)");
  }
  std::vector<Attempt> last;
  auto stream = connect_any(endpoints, hello, key, deadline, last);
  if (stream.is_ok()) return stream;
  if (stream.status().code() == StatusCode::kAborted) return Status::aborted(what + ": the session was aborted");
  std::string reasons;
  for (std::size_t i = 0; i < last.size(); ++i) {
    reasons += (i == 0 ? ": " : "; ") + endpoints[i].to_string() + ": " + last[i].reason;
  }
  return Status(stream.status().code(), what + stream.status().message() + reasons);
}

Result<Stream> Connector::connect_any(std::span<const Endpoint> endpoints, const Hello& hello,
                                      const crypto::Secret& key, Deadline deadline, std::vector<Attempt>& last) const {
  for (int round = 1;; ++round) {
    const std::vector<Attempt> before = std::exchange(last, {});
    bool again = false;
    StatusCode code = StatusCode::kTimeout;
    for (const Endpoint& endpoint : endpoints) {
      Attempt& attempt = last.emplace_back();
      auto stream =
          try_endpoint(endpoint, hello, key, endpoints.size() == 1 ? std::nullopt : std::optional(limits_of(round)),
                       deadline, attempt);
      if (stream.is_ok()) return stream;
      if (cancel_.cancelled()) return Status::aborted("");
      const bool gone = attempt.outcome == Outcome::kGone || attempt.outcome == Outcome::kHungUp;
      if (gone && code == StatusCode::kTimeout) code = StatusCode::kPeerLost;
      if (attempt.outcome == Outcome::kRefused) code = StatusCode::kPrecondition;
      again |= attempt.outcome == Outcome::kLater;
      again |= attempt.outcome == Outcome::kGone && round < kRoundsWithoutListener;
      again |= attempt.outcome == Outcome::kHungUp && round < kRoundsOfHangingUp;
      // A refusal comes in clear, perhaps to a hello that was garbled on its way: it counts when it comes again.
      const bool has_refused_before =
          before.size() >= last.size() && before[last.size() - 1].outcome == Outcome::kRefused;
      again |= attempt.outcome == Outcome::kRefused && !has_refused_before;
      // Cut off by the deadline, it says less than the round before.
      const bool is_cut_off = attempt.outcome == Outcome::kLater && deadline.expired();
      if (is_cut_off && last.size() <= before.size()) attempt = before[last.size() - 1];
    }
    if (!again) return Status(code, "");
    const Deadline pause = earlier(deadline, Deadline::after(kRoundPause * std::min(round, 10)));
    while (!pause.expired() && !cancel_.cancelled()) {
      pollfd entry{cancel_.fd(), POLLIN, 0};
      poll(&entry, 1, static_cast<int>(pause.remaining().count()) + 1);
    }
    if (deadline.expired() && !cancel_.cancelled()) return Status::timeout(" in time");
  }
}

Connector::Limits Connector::limits_of(int round) const {
  const Millis all = attempt_limit_ * round;
  return {std::min(all, attempt_limit_ / kPartForConnecting * (1 << std::min(round - 1, 10))), all};
}

Result<Stream> Connector::try_endpoint(const Endpoint& endpoint, Hello hello, const crypto::Secret& key,
                                       std::optional<Limits> limits, Deadline deadline, Attempt& attempt) const {
  const auto within = [&](Millis part) { return earlier(deadline, Deadline::after(part)); };
  auto fd = connect_stream(endpoint.address, limits ? within(limits->connecting) : deadline, cancel_);
  if (!fd.is_ok()) {
    const bool gone = fd.status().code() == StatusCode::kPeerLost;
    attempt = {gone ? Outcome::kGone : Outcome::kLater, fd.status().message()};
    return fd.status();
  }
  const Liveness liveness = hello.kind == ConnectionKind::kControl ? Liveness::kControl : Liveness::kData;
  hello.nonce = crypto::random_nonce<Nonce>();
  ConnectorHandshake handshake(hello, key);
  Status shaken = configure_stream(fd.value().get(), liveness);
  std::unique_ptr<tls::Tunnel> tunnel;
  const Deadline attempt_limit = limits ? within(limits->all) : deadline;
  if (shaken.is_ok()) shaken = shake_hands(fd.value().get(), handshake, tunnel, attempt_limit, deadline);
  if (shaken.is_ok()) return Stream(std::move(fd).value(), std::move(tunnel));
  attempt = {Outcome::kLater, shaken.message()};
  if (handshake.failed() && handshake.refusal() != Refusal::kBusy) attempt.outcome = Outcome::kRefused;
  // kInternal: an error of the socket that says nothing of the peer, a firewall's for instance.
  if (shaken.code() == StatusCode::kPeerLost || shaken.code() == StatusCode::kInternal) {
    attempt = {Outcome::kHungUp,
               "during the handshake: " + shaken.message() + " (is another program there, or a crowd of strangers?)"};
  }
  return shaken;
}

// Once the peer can count this connection as made, another one would be a second: no attempt's limit ends it then.
Status Connector::shake_hands(int fd, ConnectorHandshake& handshake, std::unique_ptr<tls::Tunnel>& tunnel,
                              Deadline attempt_limit, Deadline deadline) const {
  for (;;) {
    const Deadline limit = handshake.awaits_welcome() ? deadline : attempt_limit;
    const Bytes output = handshake.take_output();
    HVD_FAILPOINT_RETURN("hello.send");
    HVD_RETURN_IF_ERROR(send_all(fd, output, limit, cancel_.fd()));
    if (handshake.done()) return Status::ok();
    if (handshake.tls_key() && !tunnel) {
      tunnel = std::make_unique<tls::Tunnel>(fd, tls::Role::kConnector, *handshake.tls_key());
      HVD_RETURN_IF_ERROR(tls::shake_hands(*tunnel, limit, cancel_.fd()));
    }
    Bytes input(handshake.wanted());
    if (tunnel) {  // the welcome: one byte
      HVD_RETURN_IF_ERROR(tls::receive_some(*tunnel, input, limit, cancel_.fd()).status());
    } else {
      HVD_RETURN_IF_ERROR(receive_exactly(fd, input, limit, cancel_.fd()));
    }
    handshake.feed(input);
    if (handshake.failed()) return handshake.error();
  }
}

}  // namespace hvd::transport
