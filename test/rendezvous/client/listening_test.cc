#include <catch2/catch.hpp>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "test/rendezvous/support/job.h"

// Where a server listens, and whether it takes a client that speaks TLS, or does not.
using namespace hvd;
using namespace hvd::rendezvous;
using test::Job;
using test::soon;

TEST_CASE("The server listens on every address it was given, on one port", "[multi][rendezvous]") {
  Job job(1, {"127.0.0.1", "127.0.0.2", "127.0.0.1"});
  Client a = job.client("127.0.0.1");
  Client b = job.client("127.0.0.2");
  CHECK(a.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(as_text(b.wait("s", "k", soon()).value()) == "v");
  // And on no other.
  Client c = job.client("127.0.0.3");
  CHECK(c.put("s", "k2", as_bytes("v"), Deadline::after(Millis(100))).code() == StatusCode::kTimeout);
}

TEST_CASE("IPv6 works like IPv4", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = {"::1", "127.0.0.1"}});
  if (!server.is_ok()) {
    WARN("skipped: this host has no IPv6 loopback: " << server.status().message());
    return;
  }
  Client client({.host = "::1", .port = server.value()->port(), .secret = secret});
  CHECK(client.put("s", "k", as_bytes("v"), soon()).is_ok());
}

TEST_CASE("A server that cannot listen says on which address", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto start = [&](std::vector<std::string> addresses) {
    return Server::start({.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = std::move(addresses)})
        .status();
  };
  CHECK_THAT(start({"localhost"}).message(), Catch::Contains("\"localhost\""));
  CHECK_THAT(start({"192.0.2.1"}).message(), Catch::Contains("192.0.2.1"));
  CHECK(start({}).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("With TLS ranks join as without; who has no TLS, or another secret, is told so", "[multi][rendezvous]") {
  const crypto::Secret secret = crypto::Secret::random();
  const auto serve = [&](bool tls) {
    return Server::start(
               {.secret = secret, .plan = StaticPlan::of_size(1), .listen_addresses = {"127.0.0.1"}, .tls = tls})
        .value();
  };
  const auto server = serve(true);
  ClientOptions options{.host = "127.0.0.1", .port = server->port(), .secret = secret, .tls = true};
  Client client(options);
  const Seat seat = make_seat(seat_key(secret), {0, 0});
  const Bytes large(kMaxRowBytes, 3);  // of more than one record together with its head
  const auto answer = client.join(seat, {.rank = 0, .size = 1}, large, soon());
  REQUIRE(answer.is_ok());
  const std::string scope = scope_of_epoch(answer.value().epoch);
  CHECK(client.wait(scope, "0", soon()).value() == large);
  const Bytes value(kMaxValueBytes, 5);
  CHECK(client.put("s", "x", value, soon()).message() == "");
  CHECK(client.wait("s", "x", soon()).value() == value);

  options.tls = false;
  Status refused = Client(options).connect(soon()).status();
  CHECK_THAT(refused.message(), Catch::Contains("this job has TLS on: HOROVOD_TLS=1 must be set"));
  options.tls = true;
  options.secret = crypto::Secret::random();
  refused = Client(options).connect(soon()).status();
  CHECK_THAT(refused.message(), Catch::Contains("does not speak TLS with the secret of this job"));
  const auto plain = serve(false);
  options = {.host = "127.0.0.1", .port = plain->port(), .secret = secret, .tls = true};
  refused = Client(options).connect(soon()).status();
  CHECK_THAT(refused.message(), Catch::Contains("HOROVOD_TLS is on in this process"));
}
