#include <atomic>
#include <catch2/catch.hpp>
#include <string_view>

#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"
#include "test/rendezvous/support/job.h"
#include "test/rendezvous/support/tampering_proxy.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::kSoon;
using test::soon;
using test::TamperingProxy;

namespace {

struct Setup {
  explicit Setup(TamperingProxy::Change change, bool tls = false)
      : server(Server::start(
                   {.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = {"127.0.0.1"}, .tls = tls})
                   .value()),
        proxy(server->port(), std::move(change)),
        client({.host = "127.0.0.1", .port = proxy.port(), .secret = secret, .tls = tls}) {}
  crypto::Secret secret = crypto::Secret::random();
  std::unique_ptr<Server> server;
  TamperingProxy proxy;
  Client client;
};

void replace(Bytes& piece, std::string_view from, std::string_view to) {
  const auto at = std::search(piece.begin(), piece.end(), from.begin(), from.end());
  if (at != piece.end()) std::copy(to.begin(), to.end(), at);
}

}  // namespace

TEST_CASE("A value changed on its way to the client is refused", "[multi][rendezvous]") {
  Setup setup([](auto direction, int, Bytes& piece) {
    if (direction == TamperingProxy::Direction::kToClient) replace(piece, "10.0.0.1", "66.6.6.6");
  });
  REQUIRE(setup.client.put("s", "address", as_bytes("10.0.0.1"), soon()).is_ok());
  const auto value = setup.client.get_many("s", {"address"}, soon());
  CHECK(value.status().code() == StatusCode::kInternal);
  CHECK_THAT(value.status().message(), Catch::Contains("wrong signature") && Catch::Contains("/v1/mget"));
}

TEST_CASE("A status changed on its way to the client is refused", "[multi][rendezvous]") {
  Setup setup([](auto direction, int index, Bytes& piece) {
    if (direction == TamperingProxy::Direction::kToClient && index == 1) replace(piece, "409", "200");
  });
  Client other({.host = "127.0.0.1", .port = setup.server->port(), .secret = setup.secret});
  REQUIRE(other.put("s", "k", as_bytes("a"), soon()).is_ok());
  CHECK(setup.client.put("s", "k", as_bytes("b"), soon()).code() == StatusCode::kInternal);
}

TEST_CASE("An authentic answer to an earlier request is no answer to this one", "[multi][rendezvous]") {
  Bytes first_answer;
  Setup setup([&](auto direction, int index, Bytes& piece) {
    if (direction != TamperingProxy::Direction::kToClient) return;
    if (index == 1 && first_answer.empty()) {
      first_answer = piece;
    } else if (index > 0) {
      piece = first_answer;
    }
  });
  REQUIRE(setup.client.put("s", "k", as_bytes("a"), soon()).is_ok());
  CHECK_THAT(setup.client.put("s", "k", as_bytes("a"), soon()).message(), Catch::Contains("wrong signature"));
}

TEST_CASE("A session answer changed on its way opens no session", "[multi][rendezvous]") {
  Setup setup([](auto direction, int index, Bytes& piece) {
    if (direction == TamperingProxy::Direction::kToClient && index == 0) piece.back() ^= 1;
  });
  CHECK_THAT(setup.client.put("s", "k", as_bytes("a"), soon()).message(), Catch::Contains("wrong signature"));
  CHECK(setup.server->stats().requests == 0);
}

TEST_CASE("A request changed on its way to the server is refused and changes nothing", "[multi][rendezvous]") {
  Setup setup([](auto direction, int index, Bytes& piece) {
    if (direction == TamperingProxy::Direction::kToServer && index == 1) replace(piece, "10.0.0.1", "66.6.6.6");
  });
  const Status error = setup.client.put("s", "address", as_bytes("10.0.0.1"), soon());
  CHECK(error.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(error.message(), Catch::Contains("401"));
  CHECK(setup.server->stats().unauthorized == 2);  // the second attempt is changed, too
  Client other({.host = "127.0.0.1", .port = setup.server->port(), .secret = setup.secret});
  CHECK(other.get_many("s", {"address"}, soon()).value()[0] == std::nullopt);
}

TEST_CASE("A bit that flips once on its way costs no call", "[multi][rendezvous]") {
  using Direction = TamperingProxy::Direction;
  // The opening of the session, then two requests, with TLS after its handshake; the signature or the body, then the
  // head.
  const bool tls = GENERATE(false, true);
  const int index = GENERATE(0, 1, 2);
  const bool at_end = GENERATE(true, false);
  const Direction direction = GENERATE(Direction::kToServer, Direction::kToClient);
  std::atomic<int> flips = 0;
  Setup setup(
      [&](auto way, int piece_index, Bytes& piece) {
        if (way != direction || piece_index != index || flips.exchange(1) != 0) return;
        (at_end ? piece.back() : piece.front()) ^= 4;
      },
      tls);
  INFO((tls ? "TLS, piece " : "piece ") << index << (at_end ? ", end" : ", head")
                                        << (direction == Direction::kToServer ? ", asked" : ", said"));
  CHECK(setup.client.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(setup.client.get_many("s", {"k"}, soon()).value()[0] == Bytes{'v'});
  CHECK(flips == 1);
}

TEST_CASE("With TLS, too, a client with another secret is refused at its second attempt", "[multi][rendezvous]") {
  std::atomic<int> attempts = 0;
  Setup setup(
      [&](auto way, int index, Bytes&) { attempts += way == TamperingProxy::Direction::kToServer && index == 0; },
      true);
  Client stranger({.host = "127.0.0.1", .port = setup.proxy.port(), .secret = crypto::Secret::random(), .tls = true});
  const Status error = stranger.put("s", "k", as_bytes("v"), soon());
  CHECK(error.code() == StatusCode::kPrecondition);
  CHECK_THAT(error.message(), Catch::Contains("does not speak TLS with the secret of this job"));
  CHECK(attempts == 2);
}

TEST_CASE("Something that is not our server is named as such at once", "[multi][rendezvous]") {
  Setup setup([](auto direction, int, Bytes& piece) {
    const std::string_view ssh = "SSH-2.0-OpenSSH_9.2p1 Debian\r\n";
    if (direction == TamperingProxy::Direction::kToClient) piece.assign(ssh.begin(), ssh.end());
  });
  const TimePoint start = SteadyClock::now();
  const Status error = setup.client.put("s", "k", as_bytes("a"), soon());
  CHECK(SteadyClock::now() - start < kSoon / 2);
  CHECK(error.code() == StatusCode::kInternal);
  CHECK_THAT(error.message(), Catch::Contains("not ours") && Catch::Contains("HTTP/1.1"));
}

TEST_CASE("A client with another secret is refused at its second attempt, at once, and changes nothing",
          "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = {"127.0.0.1"}}).value();
  Client stranger({.host = "127.0.0.1", .port = server->port(), .secret = crypto::Secret::random()});
  const TimePoint start = SteadyClock::now();
  for (const Status& error : {stranger.put("s", "k", as_bytes("v"), soon()),
                              stranger.join(make_seat(seat_key(secret), {0, 0}), {}, {}, soon()).status(),
                              stranger.wait("s", "k", soon()).status()}) {
    CHECK(error.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(error.message(), Catch::Contains("401") && Catch::Contains("secret"));
  }
  CHECK(SteadyClock::now() - start < kSoon / 2);
  CHECK(server->stats().unauthorized == 6);  // each is tried once more
  CHECK(server->stats().requests == 0);
  Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
  CHECK(client.get_many("s", {"k"}, soon()).value()[0] == std::nullopt);
  CHECK(client.join(make_seat(seat_key(secret), {0, 0}), {}, {}, soon()).is_ok());
}
