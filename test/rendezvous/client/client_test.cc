#include "rendezvous/client/client.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/names.h"
#include "rendezvous/server/server.h"
#include "runtime/base/event.h"
#include "test/rendezvous/support/soon.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::kSoon;
using test::soon;

namespace {

struct Job {
  explicit Job(int num_proc, std::vector<std::string> addresses = {"127.0.0.1"})
      : server(
            Server::start({.secret = secret, .listen_addresses = std::move(addresses), .num_proc = num_proc}).value()) {
  }

  ClientOptions options(int rank, const std::string& host = "127.0.0.1") const {
    return {.host = host, .port = server->port(), .secret = secret, .name = "rank " + std::to_string(rank)};
  }
  Client client(int rank, const std::string& host = "127.0.0.1") { return Client(options(rank, host)); }

  crypto::Secret secret = crypto::Secret::random();
  std::unique_ptr<Server> server;
};

Bytes row_of(int rank) {
  const std::string text = "row of rank " + std::to_string(rank);
  return {text.begin(), text.end()};
}

// All ranks join at once, each on a thread; the epochs they got, 0 where it failed.
std::vector<std::uint64_t> join_all(Job& job, int size, std::vector<Status>* errors = nullptr) {
  std::vector<std::uint64_t> epochs(static_cast<std::size_t>(size));
  std::vector<Status> statuses(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Client client = job.client(rank);
      const auto index = static_cast<std::size_t>(rank);
      const auto epoch = client.join("world", rank, size, row_of(rank), soon());
      statuses[index] = epoch.status();
      if (epoch.is_ok()) epochs[index] = epoch.value();
    });
  }
  for (auto& rank : ranks) rank.join();
  if (errors != nullptr) *errors = statuses;
  return epochs;
}

}  // namespace

TEST_CASE("8 ranks that join get one epoch and read each other's rows", "[multi][rendezvous]") {
  Job job(8);
  CHECK(join_all(job, 8) == std::vector<std::uint64_t>(8, 1));

  Client client = job.client(0);
  const auto rows = client.get_many(scope_of_epoch(1), {"7", "0", "8"}, soon());
  REQUIRE(rows.is_ok());
  REQUIRE(rows.value().size() == 3);
  CHECK(rows.value()[0] == row_of(7));
  CHECK(rows.value()[1] == row_of(0));
  CHECK(rows.value()[2] == std::nullopt);
  CHECK(job.server->stats().limits_hit().empty());
}

TEST_CASE("The next join of the same ranks is the next epoch and sees nothing of the last", "[multi][rendezvous]") {
  Job job(2);
  CHECK(join_all(job, 2) == std::vector<std::uint64_t>(2, 1));
  Client client = job.client(0);
  REQUIRE(client.put(scope_of_epoch(1, "mine"), "k", as_bytes("v"), soon()).is_ok());
  CHECK(join_all(job, 2) == std::vector<std::uint64_t>(2, 2));

  const auto old_row = client.get_many(scope_of_epoch(1), {"0"}, soon());
  CHECK(old_row.status().code() == StatusCode::kPrecondition);
  CHECK(client.wait(scope_of_epoch(1, "mine"), "k", soon()).status().code() == StatusCode::kPrecondition);
  CHECK(client.put(scope_of_epoch(1, "mine"), "k2", as_bytes("v"), soon()).code() == StatusCode::kPrecondition);
  CHECK(client.put(scope_of_epoch(2), "5", as_bytes("forged"), soon()).code() == StatusCode::kPrecondition);
}

TEST_CASE("64 ranks of one host may start at once", "[multi][rendezvous]") {
  Job job(64);
  CHECK(join_all(job, 64) == std::vector<std::uint64_t>(64, 1));
  CHECK(job.server->stats().sessions == 64);
  CHECK(job.server->stats().evicted == 0);
}

TEST_CASE("Ranks that disagree on the size all hear both values", "[multi][rendezvous]") {
  Job job(2);
  Status first_error;
  std::thread first([&] {
    Client client = job.client(0);
    first_error = client.join("world", 0, 2, {}, soon()).status();
  });
  Client other = job.client(1);
  // Whoever comes second decides; the first may not be there yet, so ask until the round has both.
  const Status second_error = other.join("world", 1, 3, {}, soon()).status();
  first.join();
  for (const Status& error : {first_error, second_error}) {
    CHECK(error.code() == StatusCode::kPrecondition);
    CHECK_THAT(error.message(), Catch::Contains("says 2") && Catch::Contains("says 3"));
  }
}

TEST_CASE("A join that nobody completes ends at its deadline and names who is missing", "[multi][rendezvous]") {
  Job job(3);
  Client client = job.client(1);
  const TimePoint start = SteadyClock::now();
  const Status error = client.join("world", 1, 3, {}, Deadline::after(Millis(300))).status();
  CHECK(SteadyClock::now() - start < kSoon);
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(),
             Catch::Contains("/v1/join") && Catch::Contains("1 of 3") && Catch::Contains("never joined: 0, 2"));
}

TEST_CASE("Of all ranks that wait long for others, the lowest says once who is missing", "[multi][rendezvous]") {
  Job job(4);
  const auto waiting = [&](int rank) {
    ClientOptions options = job.options(rank);
    options.long_poll = Millis(30);
    return options;
  };
  Client first(waiting(1));
  std::vector<std::string> said;
  Event spoken;
  std::jthread rank_1([&] {
    const auto on_slow = [&](const std::string& missing) { said.push_back(missing), spoken.set(); };
    CHECK(first.join("world", 1, 4, {}, soon(), on_slow).status().code() == StatusCode::kAborted);
  });
  spoken.wait();
  Client second(waiting(2));
  const auto too_high = [&](const std::string& missing) { FAIL_CHECK("rank 2 said: " << missing); };
  CHECK(second.join("world", 2, 4, {}, Deadline::after(Millis(200)), too_high).status().code() == StatusCode::kTimeout);
  first.cancel();
  rank_1.join();
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("never joined: 0, 2, 3"));
}

TEST_CASE("A rank that went away while it waited is not part of the next epoch", "[multi][rendezvous]") {
  Job job(2);
  {
    Client gone = job.client(0);
    CHECK(gone.join("world", 0, 2, as_bytes("gone"), Deadline::after(Millis(200))).status().code() ==
          StatusCode::kTimeout);
  }
  Client late = job.client(1);
  const Status error = late.join("world", 1, 2, {}, Deadline::after(Millis(300))).status();
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::Contains("wait no longer: 0"));
  CHECK(join_all(job, 2) == std::vector<std::uint64_t>(2, 1));
  CHECK(late.get_many(scope_of_epoch(1), {"0"}, soon()).value()[0] == row_of(0));
}

TEST_CASE("Keys are written once", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client(0);
  CHECK(client.put("s", "a/b", as_bytes("one"), soon()).is_ok());
  CHECK(client.put("s", "a/b", as_bytes("one"), soon()).is_ok());
  const Status error = client.put("s", "a/b", as_bytes("two"), soon());
  CHECK(error.code() == StatusCode::kPrecondition);
  CHECK_THAT(error.message(), Catch::Contains("s/a/b"));
  CHECK(as_text(client.wait("s", "a/b", soon()).value()) == "one");
}

TEST_CASE("Only the owner deletes a key", "[multi][rendezvous]") {
  Job job(2);
  Client owner = job.client(0);
  Client other = job.client(0);  // the same name, another instance
  REQUIRE(owner.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(other.erase("s", "k", soon()).code() == StatusCode::kPrecondition);
  CHECK(owner.erase("s", "k", soon()).is_ok());
  CHECK(owner.erase("s", "k", soon()).is_ok());
  CHECK(owner.get_many("s", {"k"}, soon()).value()[0] == std::nullopt);
  CHECK(other.put("s", "k", as_bytes("w"), soon()).is_ok());
}

TEST_CASE("wait gets a key that somebody puts later, and short calls go on meanwhile", "[multi][rendezvous]") {
  Job job(2);
  Client client = job.client(0);
  Bytes got;
  std::thread waiter([&] {
    auto value = client.wait("s", "late", soon());
    if (value.is_ok()) got = value.value();
  });
  // The same client, while its other thread waits; and the key at last by another client.
  for (int i = 0; i < 20; ++i) CHECK(client.put("s", "k" + std::to_string(i), as_bytes("v"), soon()).is_ok());
  Client other = job.client(1);
  CHECK(other.put("s", "late", as_bytes("here"), soon()).is_ok());
  waiter.join();
  CHECK(as_text(got) == "here");
}

TEST_CASE("wait ends at its deadline and names the key", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client(0);
  const Status error = client.wait("s", "never", Deadline::after(Millis(200))).status();
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::Contains("/v1/kv/s/never") && Catch::Contains("127.0.0.1:"));
}

TEST_CASE("get_many fetches more than one answer can hold", "[multi][rendezvous]") {
  Job job(1);
  Client client = job.client(0);
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
  Client client = job.client(0);
  CHECK_THAT(client.put("s", "k", Bytes(kMaxValueBytes + 1), soon()).message(),
             Catch::Contains("s/k") && Catch::Contains("262145"));
  CHECK_THAT(client.put("a b", "k", {}, soon()).message(), Catch::Contains("scope \"a b\""));
  CHECK_THAT(client.put("s", "k?x", {}, soon()).message(), Catch::Contains("key \"k?x\""));
  CHECK_THAT(client.join("world", 2, 2, {}, soon()).status().message(),
             Catch::Contains("rank 2") && Catch::Contains("0..1"));
  CHECK(client.put("s", "empty", {}, soon()).is_ok());
  CHECK(client.wait("s", "empty", soon()).value().empty());
}

TEST_CASE("The server listens on every address it was given, on one port", "[multi][rendezvous]") {
  Job job(1, {"127.0.0.1", "127.0.0.2", "127.0.0.1"});
  Client a = job.client(0, "127.0.0.1");
  Client b = job.client(0, "127.0.0.2");
  CHECK(a.put("s", "k", as_bytes("v"), soon()).is_ok());
  CHECK(as_text(b.wait("s", "k", soon()).value()) == "v");
  // And on no other.
  Client c = job.client(0, "127.0.0.3");
  CHECK(c.put("s", "k2", as_bytes("v"), Deadline::after(Millis(100))).code() == StatusCode::kTimeout);
}

TEST_CASE("IPv6 works like IPv4", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  auto server = Server::start({.secret = secret, .listen_addresses = {"::1", "127.0.0.1"}, .num_proc = 1});
  if (!server.is_ok()) {
    WARN("skipped: this host has no IPv6 loopback: " << server.status().message());
    return;
  }
  Client client({.host = "::1", .port = server.value()->port(), .secret = secret, .name = "rank 0"});
  CHECK(client.put("s", "k", as_bytes("v"), soon()).is_ok());
}

TEST_CASE("A server that cannot listen says on which address", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto start = [&](std::vector<std::string> addresses) {
    return Server::start({.secret = secret, .listen_addresses = std::move(addresses), .num_proc = 1}).status();
  };
  CHECK_THAT(start({"localhost"}).message(), Catch::Contains("\"localhost\""));
  CHECK_THAT(start({"192.0.2.1"}).message(), Catch::Contains("192.0.2.1"));
  CHECK(start({}).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("cancel ends calls that wait and all later ones", "[multi][rendezvous]") {
  Job job(2);
  Client client = job.client(0);
  REQUIRE(client.put("s", "k", as_bytes("v"), soon()).is_ok());
  std::atomic<int> started{0};
  std::vector<Status> statuses(3);
  std::vector<std::thread> callers;
  callers.emplace_back([&] {
    ++started;
    statuses[0] = client.join("world", 0, 2, {}, soon()).status();
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
  Client client = job->client(0);
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
