#include "rendezvous/client/connect.h"

#include <netinet/in.h>

#include <catch2/catch.hpp>

#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"
#include "test/rendezvous/support/job.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::soon;

namespace {

// A name that is certainly nobody's (RFC 6761).
constexpr const char* kNobody = "nobody.invalid";

InternetAddress numeric(const std::string& address, std::uint16_t port) {
  return resolve(address, port, soon(), -1).value().front();
}

std::unique_ptr<Server> serve(const crypto::Secret& secret, std::vector<std::string> addresses) {
  auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = std::move(addresses)});
  return server.is_ok() ? std::move(server).value() : nullptr;
}

}  // namespace

TEST_CASE("A name is looked up, and connected to at whichever address answers", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server = serve(secret, {"127.0.0.1"});
  // Where localhost is ::1 first, that refuses.
  Client client({.host = "localhost", .port = server->port(), .secret = secret});
  CHECK(client.connect(soon()).value() == "127.0.0.1");
  CHECK(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(client.join(make_seat(seat_key(secret), {0, 0}), {}, {}, soon()).is_ok());
}

TEST_CASE("The first address refuses and the next one is taken", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server = serve(secret, {"127.0.0.1"});
  const std::uint16_t port = server->port();
  const std::vector<InternetAddress> both = {numeric("127.0.0.2", port), numeric("127.0.0.1", port)};
  const auto fd = connect_to_any(both, soon(), -1);
  REQUIRE(fd.is_ok());
  CHECK(peer_address(fd.value()).value() == "127.0.0.1");

  const std::vector<InternetAddress> neither = {numeric("127.0.0.2", port), numeric("127.0.0.3", port)};
  const Status error = connect_to_any(neither, soon(), -1).status();
  CHECK(error.code() == StatusCode::kPeerLost);
  CHECK(error.message() == "127.0.0.2: connection refused, 127.0.0.3: connection refused");
}

TEST_CASE("A name that nobody knows is tried until the deadline; the error names both", "[multi][rendezvous]") {
  Client client({.host = kNobody, .port = 4711, .secret = crypto::Secret::random()});
  const TimePoint start = SteadyClock::now();
  const Status error = client.connect(Deadline::after(Millis(400))).status();
  CHECK(SteadyClock::now() - start < test::kSoon);
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::StartsWith("rendezvous nobody.invalid:4711 /v1/join: ") &&
                                  Catch::Contains("address of \"nobody.invalid\"") && Catch::Contains("(tried for 0."));
}

TEST_CASE("IPv6 addresses are read with and without a scope", "[multi][rendezvous]") {
  CHECK(numeric("::1", 1).storage.ss_family == AF_INET6);
  CHECK(numeric("fe80::1%lo", 1).storage.ss_family == AF_INET6);
  const auto secret = crypto::Secret::random();
  const auto server = serve(secret, {"::1"});
  if (server == nullptr) {
    WARN("skipped: this host has no IPv6 loopback");
    return;
  }
  Client client({.host = "::1", .port = server->port(), .secret = secret});
  CHECK(client.connect(soon()).value() == "::1");
  CHECK(server->address() == "::1");
}

TEST_CASE("A server that listens everywhere is known by its host's name", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server = serve(secret, {"0.0.0.0"});
  CHECK_FALSE(server->address().empty());
  CHECK(server->address() != "0.0.0.0");
  Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
  CHECK(client.connect(soon()).is_ok());
  // A port that somebody chose is taken again after a restart, and is refused while it is taken.
  const std::uint16_t port = server->port();
  const auto again = [&] {
    return Server::start(
        {.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = {"0.0.0.0"}, .ports = {port, port}});
  };
  CHECK_THAT(again().status().message(), Catch::Contains("port " + std::to_string(port) + " is taken"));
}
