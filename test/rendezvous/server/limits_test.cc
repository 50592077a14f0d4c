#include "rendezvous/protocol/limits.h"

#include <catch2/catch.hpp>

#include "rendezvous/server/server.h"
#include "runtime/admission/admission.h"
#include "test/rendezvous/support/job.h"
#include "test/rendezvous/support/raw_client.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::Job;
using test::key_route;
using test::RawClient;
using test::RawSession;

namespace {

int status_of(const Job& job, std::string_view request) { return RawClient(job.server->port()).status_of(request); }

}  // namespace

TEST_CASE("Requests that are not ours get the right status without a secret", "[multi][rendezvous]") {
  Job job(2);
  const auto get = [&](const std::string& line) {
    return status_of(job, line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  };
  CHECK(get("GET /") == 404);
  CHECK(get("GET /v1/kv/onlyscope") == 404);
  CHECK(get("GET /v1/sessions") == 404);
  CHECK(get("HEAD /") == 405);
  CHECK(get("HEAD /v1/kv/s/k") == 405);
  CHECK(get("PATCH /v1/kv/s/k") == 405);
  CHECK(get("GET /v1/join") == 405);
  CHECK(get("POST /v1/kv/s/k") == 405);
  CHECK(get("GET /v1/kv/s/%2e%2e") == 400);
  CHECK(get("GET /v1/kv/s/k?wait=30001") == 400);
  CHECK(get("GET /v1/kv/s/k?other=1") == 400);
  CHECK(get("PUT /v1/kv/s/k") == 401);
  CHECK(get("DELETE /v1/kv/s/k") == 405);
  CHECK(get("POST /v1/session") == 401);
  CHECK(get("POST /v1/join") == 401);
  CHECK(get("POST /v1/mget") == 401);
  CHECK(status_of(job, "GET / HTTP/1.0\r\nHost: x\r\n\r\n") == 505);
  CHECK(status_of(job, "POST /v1/join HTTP/1.1\r\nHost: x\r\n\r\n") == 411);
  CHECK(job.server->stats().requests == 0);
}

TEST_CASE("Oversized heads, targets and bodies get the right status and the connection ends", "[multi][rendezvous]") {
  Job job(2);
  CHECK(status_of(job, "GET /" + std::string(600, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n") == 414);
  CHECK(status_of(job, "GET /" + std::string(512, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n") == 414);
  CHECK(status_of(job, "GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(9000, 'x') + "\r\n\r\n") == 431);
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (std::size_t i = 0; i < kMaxHeaderFields; ++i) many += "A: b\r\n";
  CHECK(status_of(job, many + "\r\n") == 431);
  CHECK(status_of(job, "PUT /v1/kv/s/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n") == 413);
  CHECK(status_of(job, "PUT /v1/kv/s/k HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n") == 413);
  CHECK(status_of(job, "PUT /v1/kv/s/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") == 501);
  CHECK(status_of(job,
                  "PUT /v1/kv/s/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: "
                  "100-continue\r\n\r\n") == 417);

  RawClient client(job.server->port());
  // More than the sockets buffer: the answer must arrive although the body is never read into
  // memory.
  const std::string body(2 * 1024 * 1024, 'x');
  client.send("PUT /v1/kv/s/k HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
  const auto response = client.receive();
  REQUIRE(response);
  CHECK(response->status == 413);
  CHECK(response->close);
  CHECK(client.closed_within(Millis(3000)));
}

TEST_CASE("A signed value over the limit is refused with its size", "[multi][rendezvous]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  const auto response = session.exchange(key_route(Action::kPut, "s", "k"), Bytes(kMaxValueBytes + 1));
  REQUIRE(response);
  CHECK(response->status == 400);
  CHECK_FALSE(response->signature.empty());
  // The session goes on.
  CHECK(session.exchange(key_route(Action::kPut, "s", "k"), Bytes(kMaxValueBytes))->status == 200);
}

TEST_CASE("Who has not shown the key is judged by the head, before any body", "[multi][rendezvous]") {
  Job job(2);
  const auto head = [&](const std::string& line, std::size_t length) {
    return status_of(job, line + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n");
  };
  CHECK(head("PUT /v1/kv/s/k", kMaxBodyBytes) == 401);
  CHECK(head("POST /v1/join", 1) == 401);
  CHECK(head("POST /v1/session", kMaxSessionBodyBytes + 1) == 413);
  CHECK(job.server->stats().unauthorized == 2);
  RawClient late(job.server->port());
  late.send("POST /v1/session HTTP/1.1\r\nHost: x\r\nContent-Length: 256\r\n\r\n");
  CHECK(late.closed_within(admission::kIntroductionDeadline + Millis(1000)));
  CHECK(job.server->stats().late >= 1);  // and those above, where they were slow
}

TEST_CASE("A client that trickles its first head is closed at the deadline", "[multi][rendezvous]") {
  Job job(2);
  const TimePoint start = SteadyClock::now();
  RawClient client(job.server->port());
  // Far more patience than the deadline: bytes must not extend it.
  const std::string head = "GET /v1/kv/s/k HTTP/1.1\r\nHost: x\r\n";
  std::size_t sent = 0;
  while (sent < head.size() && !client.closed_within(Millis(50))) client.send(head.substr(sent++, 1));
  const auto took = SteadyClock::now() - start;
  CHECK(sent < head.size());
  CHECK(took >= admission::kIntroductionDeadline - Millis(50));
  CHECK(took < admission::kIntroductionDeadline + Millis(1000));
  CHECK(job.server->stats().late == 1);
}

TEST_CASE("A client that trickles its body is closed at the deadline", "[multi][rendezvous][slow]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  const TimePoint start = SteadyClock::now();  // the deadline begins when the server has opened it
  REQUIRE(session.open());
  const Bytes request = session.sign(key_route(Action::kPut, "s", "k"), Bytes(1000));
  std::size_t sent = request.size() - 900;
  session.raw().send(ByteSpan(request).first(sent));
  while (sent < request.size() && !session.raw().closed_within(Millis(200)))
    session.raw().send(ByteSpan(request).subspan(sent++, 1));
  const auto took = SteadyClock::now() - start;
  CHECK(took >= kRequestDeadline - Millis(50));
  CHECK(took < kRequestDeadline + Millis(1000));
}

TEST_CASE("A session that is opened and not used is closed at the deadline", "[multi][rendezvous][slow]") {
  // Somebody who replays a recorded opening gets an answer, but must not be able to keep the
  // connection.
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  CHECK(session.raw().closed_within(kHeadDeadline + Millis(1000)));
  CHECK(job.server->stats().sessions == 0);
}

TEST_CASE("A second request before the answer to the first ends the connection", "[multi][rendezvous]") {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  SECTION("while the first waits") {
    session.raw().send(session.sign(key_route(Action::kGet, "s", "never", Millis(30000))));
    session.raw().send(session.sign(key_route(Action::kGet, "s", "k")));
    const auto response = session.raw().receive();
    REQUIRE(response);
    CHECK(response->status == 400);
    CHECK(session.raw().closed_within(Millis(3000)));
  }
  SECTION("in one piece with the first") {
    Bytes both = session.sign(key_route(Action::kPut, "s", "k"), as_bytes("v"));
    const Bytes second = session.sign(key_route(Action::kGet, "s", "k"));
    both.insert(both.end(), second.begin(), second.end());
    session.raw().send(both);
    const auto response = session.raw().receive();
    REQUIRE(response);
    CHECK(response->status == 400);
  }
}
