#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "rendezvous/client/client.h"
#include "rendezvous/protocol/limits.h"
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
using test::soon;

namespace {

// How long two clients take beside 200 silent connections, which are turned out for others; on a busy machine those of
// them that have timed out by then are not.
SteadyClock::duration time_beside_a_crowd() {
  Job job(2);
  Client before = job.client();
  REQUIRE(before.put("s", "before", as_bytes("v"), soon()).is_ok());
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<RawClient>(job.server->port()));

  const TimePoint start = SteadyClock::now();
  CHECK(before.put("s", "during", as_bytes("v"), soon()).is_ok());
  Client after = job.client();
  CHECK(after.put("s", "after", as_bytes("v"), soon()).is_ok());
  const auto took = SteadyClock::now() - start;

  const ServerStats stats = job.server->stats();
  CHECK(stats.evicted + stats.late >= 200 - admission::Limits::for_ranks(2).per_source);
  if (stats.late == 0) CHECK_THAT(stats.limits_hit(), Catch::Contains("evicted="));
  return took;
}

}  // namespace

TEST_CASE("200 silent connections do not keep a client from being served", "[multi][rendezvous]") {
  const Deadline deadline = soon();
  auto took = time_beside_a_crowd();
  while (took >= admission::kIntroductionDeadline && !deadline.expired()) took = time_beside_a_crowd();
  CHECK(took < admission::kIntroductionDeadline);  // nobody waited for a silent one to time out
}

TEST_CASE("Garbage on the port harms nobody", "[multi][rendezvous]") {
  Job job(2);
  Client client = job.client();
  REQUIRE(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    RawClient raw(job.server->port());
    std::string garbage(random() % 3000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    raw.send(garbage);
  }
  // What scanners send: a TLS hello, SSH, a proxy request.
  CHECK(RawClient(job.server->port()).status_of(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8)) == 400);
  CHECK(RawClient(job.server->port()).status_of("SSH-2.0-scan\r\n\r\n") == 400);
  CHECK(RawClient(job.server->port()).status_of("GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
  CHECK(as_text(client.wait("s", "k", soon()).value()) == "v");
  CHECK(job.server->stats().requests == 2);
}

TEST_CASE("Authenticated connections over the limit are turned away and do not hurt the others",
          "[multi][rendezvous]") {
  Job job(2);
  std::vector<std::unique_ptr<RawSession>> sessions;
  for (std::size_t i = 0; i < max_connections(2); ++i) {
    sessions.push_back(std::make_unique<RawSession>(job.server->port(), job.secret));
    REQUIRE(sessions.back()->open());
    REQUIRE(sessions.back()->exchange(key_route(Action::kGet, "s", "k"))->status == 404);
  }
  RawClient one_more(job.server->port());
  CHECK(one_more.closed_within(Millis(1000)));
  CHECK(job.server->stats().turned_away == 1);
  CHECK(sessions.front()->exchange(key_route(Action::kPut, "s", "k"), as_bytes("v"))->status == 200);
  sessions.pop_back();
  // The server needs a moment to see it go; the client's retries find the free place.
  CHECK(as_text(job.client().wait("s", "k", soon()).value()) == "v");
}

TEST_CASE("A client that goes while it waits leaves nothing behind", "[multi][rendezvous]") {
  Job job(2);
  {
    RawSession session(job.server->port(), job.secret);
    REQUIRE(session.open());
    session.raw().send(session.sign(key_route(Action::kGet, "s", "k", Millis(30000))));
  }
  Client client = job.client();
  CHECK(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(as_text(client.wait("s", "k", soon()).value()) == "v");
}

SteadyClock::duration time_to_stop_while_clients_wait() {
  Job job(2);
  RawSession session(job.server->port(), job.secret);
  REQUIRE(session.open());
  session.raw().send(session.sign(key_route(Action::kGet, "s", "k", Millis(30000))));
  RawClient silent(job.server->port());
  const TimePoint start = SteadyClock::now();
  job.server.reset();
  const auto took = SteadyClock::now() - start;
  CHECK(session.raw().closed_within(Millis(1000)));
  return took;
}

TEST_CASE("The server stops at once while clients wait", "[multi][rendezvous]") {
  constexpr Millis kAtOnce{1500};  // no deadline of a request was waited for
  auto took = time_to_stop_while_clients_wait();
  for (int again = 0; again < 2 && took >= kAtOnce; ++again)
    took = time_to_stop_while_clients_wait();  // a busy machine
  CHECK(took < kAtOnce);
}
