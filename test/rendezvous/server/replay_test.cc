#include <catch2/catch.hpp>

#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"
#include "test/rendezvous/support/job.h"
#include "test/rendezvous/support/raw_client.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::Job;
using test::key_route;
using test::RawClient;
using test::RawSession;

TEST_CASE("A recorded request is refused in its own session", "[multi][rendezvous]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  const Bytes put = session.sign(key_route(Action::kPut, "s", "k"), as_bytes("v"));
  REQUIRE(session.raw().send(put));
  REQUIRE(session.raw().receive()->status == 200);
  REQUIRE(session.raw().send(put));
  const auto response = session.raw().receive();
  REQUIRE(response);
  CHECK(response->status == 401);
  CHECK(response->signature.empty());
  CHECK(session.raw().closed_within(Millis(3000)));

  CHECK(job.server->stats().requests == 1);
}

TEST_CASE("A recorded session is refused on another connection", "[multi][rendezvous]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  const Bytes put = session.sign(key_route(Action::kPut, "s", "k"), as_bytes("v"));

  RawClient replay(job.server->port());
  REQUIRE(replay.send(session.opening()));
  CHECK(replay.receive()->status == 200);  // answered, with a nonce that makes the rest worthless
  REQUIRE(replay.send(put));
  CHECK(replay.receive()->status == 401);

  RawClient without_session(job.server->port());
  REQUIRE(without_session.send(put));
  CHECK(without_session.receive()->status == 401);
  CHECK(job.server->stats().requests == 0);
}

TEST_CASE("A counter that does not rise is refused", "[multi][rendezvous]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  const Bytes first = session.sign(key_route(Action::kGet, "s", "k"));
  const Bytes second = session.sign(key_route(Action::kGet, "s", "k"));
  REQUIRE(session.raw().send(second));
  CHECK(session.raw().receive()->status == 404);  // counters may skip
  REQUIRE(session.raw().send(first));
  CHECK(session.raw().receive()->status == 401);
}

TEST_CASE("Without the secret, keys that are there look like keys that are not", "[multi][rendezvous]") {
  Job job(2);
  Client client({.host = "127.0.0.1", .port = job.server->port(), .secret = job.secret});
  REQUIRE(client.put("s", "known", as_bytes("v"), Deadline::after(Millis(5000))).is_ok());
  const std::string authorization = "HVD1 " + std::string(32, '0') + ",1," + std::string(64, '0');
  std::vector<HttpResponse> responses;
  for (const std::string key : {"known", "other"}) {
    for (const std::string& field : {std::string(), "Authorization: " + authorization + "\r\n"}) {
      RawClient raw(job.server->port());
      raw.send("GET /v1/kv/s/" + key + " HTTP/1.1\r\nHost: x\r\n" + field + "\r\n");
      responses.push_back(raw.receive().value());
    }
  }
  for (const HttpResponse& response : responses) {
    CHECK(response.status == 401);
    CHECK(response.body == responses.front().body);
    CHECK(response.signature.empty());
  }
}
