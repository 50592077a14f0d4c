#include "rendezvous/client/client.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "rendezvous/protocol/names.h"
#include "rendezvous/server/server.h"
#include "runtime/base/event.h"
#include "test/rendezvous/support/job.h"

// How ranks join: together, again, late, never.
using namespace hvd;
using namespace hvd::rendezvous;
using test::Job;
using test::kSoon;
using test::soon;

namespace {

Bytes row_of(int rank) {
  const std::string text = "row of rank " + std::to_string(rank);
  return {text.begin(), text.end()};
}

// All ranks join at once, each on a thread; the epoch that all of them got.
std::uint64_t join_all(Job& job, int size) {
  std::vector<std::uint64_t> epochs(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Client client = job.client();
      const auto answer = client.join(job.seat(rank), {.rank = rank, .size = size}, row_of(rank), soon());
      if (answer.is_ok() && answer.value().numbers == RankNumbers{.rank = rank, .size = size}) {
        epochs[static_cast<std::size_t>(rank)] = answer.value().epoch;
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  CHECK(epochs == std::vector<std::uint64_t>(static_cast<std::size_t>(size), epochs[0]));
  CHECK(epochs[0] != 0);  // a join that failed
  return epochs[0];
}

}  // namespace

TEST_CASE("8 ranks that join get one epoch and read each other's rows", "[multi][rendezvous]") {
  Job job(8);
  const std::uint64_t epoch = join_all(job, 8);

  Client client = job.client();
  const auto rows = client.get_many(scope_of_epoch(epoch), {"7", "0", "8"}, soon());
  REQUIRE(rows.is_ok());
  REQUIRE(rows.value().size() == 3);
  CHECK(rows.value()[0] == row_of(7));
  CHECK(rows.value()[1] == row_of(0));
  CHECK(rows.value()[2] == std::nullopt);
  CHECK(job.server->stats().limits_hit().empty());
}

TEST_CASE("The next join of the same ranks is the next epoch and sees nothing of the last", "[multi][rendezvous]") {
  Job job(2);
  const std::uint64_t epoch = join_all(job, 2);
  Client client = job.client();
  REQUIRE(client.put(scope_of_epoch(epoch, "mine"), "k", as_bytes("v"), soon()).is_ok());
  CHECK(join_all(job, 2) == epoch + 1);

  const auto old_row = client.get_many(scope_of_epoch(epoch), {"0"}, soon());
  CHECK(old_row.status().code() == StatusCode::kPrecondition);
  CHECK(client.wait(scope_of_epoch(epoch, "mine"), "k", soon()).status().code() == StatusCode::kPrecondition);
  CHECK(client.put(scope_of_epoch(epoch, "mine"), "k2", as_bytes("v"), soon()).code() == StatusCode::kPrecondition);
  CHECK(client.put(scope_of_epoch(epoch + 1), "5", as_bytes("forged"), soon()).code() == StatusCode::kPrecondition);
}

TEST_CASE("A rank of a server sees nothing of the next server, whose secret is the same", "[multi][rendezvous]") {
  Job before(2);
  const std::uint64_t old_epoch = join_all(before, 2);
  before.server.reset();
  Job job(2, {"127.0.0.1"}, before.secret);
  const std::uint64_t epoch = join_all(job, 2);
  constexpr std::uint64_t kJoinsOfOneServer = 1U << 16U;
  CHECK(std::max(epoch, old_epoch) - std::min(epoch, old_epoch) >= kJoinsOfOneServer);

  Client left_behind = job.client();
  const Status row = left_behind.get_many(scope_of_epoch(old_epoch), {"0"}, soon()).status();
  CHECK(row.code() == StatusCode::kPrecondition);
  CHECK_THAT(row.message(), Catch::Contains("the rendezvous server is not the one that they joined"));
  CHECK(left_behind.put(scope_of_epoch(old_epoch, "mine"), "k", as_bytes("v"), soon()).code() ==
        StatusCode::kPrecondition);
}

TEST_CASE("64 ranks of one host may start at once", "[multi][rendezvous]") {
  Job job(64);
  join_all(job, 64);
  CHECK(job.server->stats().sessions == 64);
  CHECK(job.server->stats().evicted == 0);
}

TEST_CASE("A rank whose environment contradicts the plan is refused alone, with both values", "[multi][rendezvous]") {
  Job job(2);
  Result<JoinAnswer> first = Status::internal("never joined");
  std::thread waiting([&] { first = job.client().join(job.seat(0), {}, {}, soon()); });
  while (job.server->stats().requests < 1) std::this_thread::yield();
  Client other = job.client();
  const Status refused = other.join(job.seat(1), {.rank = 1, .size = 3}, {}, soon()).status();
  CHECK(refused.code() == StatusCode::kPrecondition);
  CHECK_THAT(refused.message(),
             Catch::Contains("HOROVOD_SIZE is 3") && Catch::Contains("slot 1") && Catch::Contains("plan has 2"));
  CHECK(other.join(job.seat(1), {.rank = 1, .size = 2}, {}, soon()).is_ok());
  waiting.join();
  CHECK(first.is_ok());
}

TEST_CASE("A stale process is refused, a newer one takes its place, and a stranger disturbs nobody",
          "[multi][rendezvous]") {
  Job job(2);
  Client stale = job.client();
  Client live = job.client();
  Status stale_error;
  std::uint64_t epoch = 0;
  std::thread waiting([&] { stale_error = stale.join(job.seat(0, 1), {}, {}, soon()).status(); });
  while (job.server->stats().requests < 1) std::this_thread::yield();
  std::thread newer([&] {
    const auto answer = live.join(job.seat(0, 2), {}, as_bytes("live"), soon());
    if (answer.is_ok()) epoch = answer.value().epoch;
  });
  waiting.join();
  CHECK(stale_error.code() == StatusCode::kPrecondition);
  CHECK_THAT(stale_error.message(), Catch::Contains("incarnation 2 of slot 0 has joined in the place of this process"));
  CHECK_THAT(stale.join(job.seat(0, 1), {}, {}, soon()).status().message(), Catch::Contains("comes too late"));
  CHECK_THAT(stale.join(job.seat(2), {}, {}, soon()).status().message(), Catch::Contains("slot 2 is not of this job"));
  Seat forged = job.seat(1);
  forged.process.number = 7;
  CHECK_THAT(stale.join(forged, {}, {}, soon()).status().message(), Catch::Contains("token"));

  CHECK(job.client().join(job.seat(1, 1), {}, {}, soon()).is_ok());
  newer.join();
  CHECK(epoch != 0);
  CHECK(as_text(*live.get_many(scope_of_epoch(epoch), {"0"}, soon()).value()[0]) == "live");
}

TEST_CASE("A plan that changes its mind is asked again when it says so", "[multi][rendezvous]") {
  struct PatientPlan final : Plan {
    std::atomic<bool> begin = false;
    int max_slots() const override { return 4; }
    Status admit(const Seat&, const RankNumbers&) const override { return Status::ok(); }
    Result<Round> decide(const Waiting& waiting) override {
      Round round;
      if (!begin) return round;
      const int size = static_cast<int>(waiting.size());
      for (const auto& [slot, body] : waiting) {
        const int rank = static_cast<int>(round.size());
        round.emplace(slot, RankNumbers{.rank = rank, .size = size});
      }
      return round;
    }
    std::string describe_missing(const Waiting&, const std::set<int>&) const override { return "not yet"; }
  };
  const auto plan = std::make_shared<PatientPlan>();
  const auto secret = crypto::Secret::random();
  const auto server = Server::start({.secret = secret, .plan = plan, .listen_addresses = {"127.0.0.1"}}).value();
  Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
  Result<JoinAnswer> answer = Status::internal("never joined");
  std::thread rank(
      [&] { answer = client.join(make_seat(seat_key(secret), {3, 1}), {.rank = 3, .size = 4}, {}, soon()); });
  while (server->stats().requests < 1) std::this_thread::yield();
  plan->begin = true;
  server->reconsider();
  rank.join();
  REQUIRE(answer.is_ok());
  CHECK(answer.value().numbers == RankNumbers{.rank = 0, .size = 1});
}

TEST_CASE("A join that nobody completes ends at its deadline and names who is missing", "[multi][rendezvous]") {
  Job job(3);
  Client client = job.client();
  const TimePoint start = SteadyClock::now();
  const Status error = client.join(job.seat(1), {}, {}, Deadline::after(Millis(300))).status();
  CHECK(SteadyClock::now() - start < kSoon);
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(),
             Catch::Contains("/v1/join") && Catch::Contains("1 of 3") && Catch::Contains("never joined: 0, 2"));
}

TEST_CASE("Of all ranks that wait long for others, the lowest says once who is missing", "[multi][rendezvous]") {
  Job job(4);
  const auto waiting = [&] {
    ClientOptions options = job.options();
    options.long_poll = Millis(30);
    return options;
  };
  Client first(waiting());
  std::vector<std::string> said;
  Event spoken;
  std::jthread rank_1([&] {
    const auto on_slow = [&](const std::string& missing) { said.push_back(missing), spoken.set(); };
    CHECK(first.join(job.seat(1), {}, {}, soon(), on_slow).status().code() == StatusCode::kAborted);
  });
  spoken.wait();
  Client second(waiting());
  const auto too_high = [&](const std::string& missing) { FAIL_CHECK("rank 2 said: " << missing); };
  CHECK(second.join(job.seat(2), {}, {}, Deadline::after(Millis(200)), too_high).status().code() ==
        StatusCode::kTimeout);
  first.cancel();
  rank_1.join();
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("never joined: 0, 2, 3"));
}

TEST_CASE("A rank that went away while it waited is not part of the next epoch", "[multi][rendezvous]") {
  Job job(2);
  {
    Client gone = job.client();
    CHECK(gone.join(job.seat(0), {}, as_bytes("gone"), Deadline::after(Millis(200))).status().code() ==
          StatusCode::kTimeout);
  }
  Client late = job.client();
  const Status error = late.join(job.seat(1), {}, {}, Deadline::after(Millis(300))).status();
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::Contains("wait no longer: 0"));
  const std::uint64_t epoch = join_all(job, 2);
  CHECK(late.get_many(scope_of_epoch(epoch), {"0"}, soon()).value()[0] == row_of(0));
}
