#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "test/rendezvous/support/job.h"

// What clients write and read, and how calls end that wait.
using namespace hvd;
using namespace hvd::rendezvous;
using test::Job;
using test::kSoon;
using test::soon;

TEST_CASE("Keys are written once", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client();
  CHECK(client.put("s", "a/b", as_bytes("one"), soon()).is_ok());
  CHECK(client.put("s", "a/b", as_bytes("one"), soon()).is_ok());
  const Status error = client.put("s", "a/b", as_bytes("two"), soon());
  CHECK(error.code() == StatusCode::kPrecondition);
  CHECK_THAT(error.message(), Catch::Contains("s/a/b"));
  CHECK(as_text(client.wait("s", "a/b", soon()).value()) == "one");
}

TEST_CASE("wait gets a key that somebody puts later, and short calls go on meanwhile", "[multi][rendezvous]") {
  Job job(2);
  Client client = job.client();
  Bytes got;
  std::thread waiter([&] {
    auto value = client.wait("s", "late", soon());
    if (value.is_ok()) got = value.value();
  });
  // The same client, while its other thread waits; and the key at last by another client.
  for (int i = 0; i < 20; ++i) CHECK(client.put("s", "k" + std::to_string(i), as_bytes("v"), soon()).is_ok());
  Client other = job.client();
  CHECK(other.put("s", "late", as_bytes("here"), soon()).is_ok());
  waiter.join();
  CHECK(as_text(got) == "here");
}

TEST_CASE("wait ends at its deadline and names the key", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client();
  const Status error = client.wait("s", "never", Deadline::after(Millis(200))).status();
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::Contains("/v1/kv/s/never") && Catch::Contains("127.0.0.1:"));
}

TEST_CASE("get_many fetches more than one answer can hold", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client();
  const Bytes big(kMaxValueBytes, 7);
  std::vector<std::string> keys;
  for (int i = 0; i < 9; ++i) {
    keys.push_back("k" + std::to_string(i));
    REQUIRE(client.put("s", keys.back(), big, soon()).is_ok());
  }
  for (int i = 0; i < 3000; ++i) keys.push_back("absent" + std::to_string(i));
  const auto values = client.get_many("s", keys, soon());
  REQUIRE(values.is_ok());
  REQUIRE(values.value().size() == keys.size());
  CHECK(values.value()[8] == big);
  CHECK(values.value().back() == std::nullopt);
  CHECK(client.get_many("s", {}, soon()).value().empty());
}

TEST_CASE("Values and names over the limits are refused by name before they are sent", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client();
  CHECK_THAT(client.put("s", "k", Bytes(kMaxValueBytes + 1), soon()).message(),
             Catch::Contains("s/k") && Catch::Contains("262145"));
  CHECK_THAT(client.put("a b", "k", {}, soon()).message(), Catch::Contains("scope \"a b\""));
  CHECK_THAT(client.put("s", "k?x", {}, soon()).message(), Catch::Contains("key \"k?x\""));
  CHECK_THAT(client.join(job.seat(2), {}, {}, soon()).status().message(), Catch::Contains("slot 2 is not of this job"));
  CHECK(client.put("s", "empty", {}, soon()).is_ok());
  CHECK(client.wait("s", "empty", soon()).value().empty());
}

TEST_CASE("cancel ends calls that wait and all later ones", "[multi][rendezvous]") {
  Job job(2);
  Client client = job.client();
  REQUIRE(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  std::atomic<int> started{0};
  std::vector<Status> statuses(3);
  std::vector<std::thread> callers;
  callers.emplace_back([&] {
    ++started;
    statuses[0] = client.join(job.seat(0), {}, {}, soon()).status();
  });
  callers.emplace_back([&] {
    ++started;
    statuses[1] = client.wait("s", "never", soon()).status();
  });
  callers.emplace_back([&] {
    ++started;
    statuses[2] = client.wait("s", "never2", soon()).status();
  });
  while (started < 3) std::this_thread::yield();
  const TimePoint start = SteadyClock::now();
  client.cancel();
  for (auto& caller : callers) caller.join();
  CHECK(SteadyClock::now() - start < kSoon / 2);
  for (const Status& status : statuses) CHECK(status.code() == StatusCode::kAborted);
  CHECK(client.put("s", "k2", as_bytes("v"), soon()).code() == StatusCode::kAborted);
  client.cancel();
}

TEST_CASE("A server that goes away ends waiting clients at their deadline, not before", "[multi][rendezvous]") {
  auto job = std::make_unique<Job>(2);
  Client client = job->client();
  REQUIRE(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  const std::uint16_t port = job->server->port();
  job->server.reset();
  const TimePoint start = SteadyClock::now();
  const Status error = client.put("s", "k2", as_bytes("v"), Deadline::after(Millis(300)));
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK(SteadyClock::now() - start >= Millis(250));
  CHECK_THAT(error.message(),
             Catch::Contains("127.0.0.1:" + std::to_string(port) + " /v1/kv/s/k2: connection refused"));
}
