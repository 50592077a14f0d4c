#include "launcher/job/seat_plan.h"

#include <catch2/catch.hpp>
#include <ctime>
#include <mutex>
#include <thread>

#include "launcher/job/elastic_plan.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr rendezvous::RankNumbers kNumbers{
    .rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .cross_rank = 0, .cross_size = 1};

// A job with one slot, and the real server of its launcher.
struct OneSlotJob {
  crypto::Secret secret = crypto::Secret::random();
  std::shared_ptr<CurrentSeats> seats = std::make_shared<CurrentSeats>();
  std::shared_ptr<SeatPlan> plan = std::make_shared<SeatPlan>(std::vector{kNumbers}, seats);
  std::unique_ptr<rendezvous::Server> server =
      rendezvous::Server::start({.secret = secret, .plan = plan, .listen_addresses = {"127.0.0.1"}}).value();

  Result<rendezvous::JoinAnswer> join(rendezvous::Incarnation process) const {
    rendezvous::Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
    return client.join({.process = process, .token = rendezvous::seat_token(secret, process)}, {}, {},
                       Deadline::after(Millis(10000)));
  }
};

}  // namespace

TEST_CASE("Of a slot's processes only the latest that the launcher started may join", "[job]") {
  const OneSlotJob job;
  const auto error_of = [&job](std::uint32_t number) {
    return job.join({.slot = 0, .number = number}).status().message();
  };
  CHECK(error_of(1).find("incarnation 1 of slot 0 may not join: the slot has no process now") != std::string::npos);
  job.seats->set_current({.slot = 0, .number = 1});
  const auto first = job.join({.slot = 0, .number = 1});
  REQUIRE(first.is_ok());
  CHECK(first.value().numbers == kNumbers);
  // From the moment in which its successor is started, and before that has joined.
  job.seats->set_current({.slot = 0, .number = 2});
  CHECK(error_of(1).find("incarnation 1 of slot 0 may not join: the slot has incarnation 2 now") != std::string::npos);
  CHECK(error_of(3).find("incarnation 3 of slot 0 may not join: the slot has incarnation 2 now") != std::string::npos);
  const auto second = job.join({.slot = 0, .number = 2});
  REQUIRE(second.is_ok());
  CHECK(second.value().epoch == first.value().epoch + 1);
}

TEST_CASE("A round that lacks a process which has ended is refused with the words of the first that has",
          "[unit][job]") {
  CurrentSeats seats;
  CHECK(seats.check_all().is_ok());
  for (int slot = 0; slot < 4; ++slot) seats.set_current({.slot = slot, .number = 1});
  CHECK(seats.check_all().is_ok());
  seats.remove({.slot = 3, .number = 1}, "rank 3 has ended");
  seats.remove({.slot = 1, .number = 1}, "rank 1 has ended");
  seats.remove({.slot = 3, .number = 1}, "rank 3 has ended, once more");
  seats.remove({.slot = 2, .number = 7}, "it is not the slot's");
  CHECK(seats.check_all().message() == "rank 3 has ended, once more");
  seats.set_current({.slot = 3, .number = 2});
  CHECK(seats.check_all().message() == "rank 1 has ended");
  seats.set_current({.slot = 1, .number = 2});
  CHECK(seats.check_all().is_ok());
}

TEST_CASE("What each join of a static job asks costs the same however many slots there are", "[unit][job]") {
  constexpr int kSlots = 20'000;
  CurrentSeats seats;
  for (int slot = 0; slot < kSlots; ++slot) seats.set_current({.slot = slot, .number = 1});
  // In this process' own time, to which the machine's other work adds nothing.
  const std::clock_t before = std::clock();
  for (int join = 0; join < kSlots; ++join) REQUIRE(seats.check_all().is_ok());
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 10);
}

TEST_CASE("An elastic job's round begins when it is offered and all of it waits, led by who has come furthest",
          "[job]") {
  const crypto::Secret secret = crypto::Secret::random();
  const auto seats = std::make_shared<CurrentSeats>();
  std::mutex mutex;
  std::vector<rendezvous::Incarnation> waiting;
  std::map<int, Placement> began;
  const ElasticPlan::Events events{.on_waiting =
                                       [&](rendezvous::Incarnation process, std::uint64_t) {
                                         const std::lock_guard lock(mutex);
                                         waiting.push_back(process);
                                       },
                                   .on_began =
                                       [&](const std::map<int, Placement>& ranks) {
                                         const std::lock_guard lock(mutex);
                                         began = ranks;
                                       }};
  const auto plan = std::make_shared<ElasticPlan>(4, 0, seats, events);
  const auto server =
      rendezvous::Server::start({.secret = secret, .plan = plan, .listen_addresses = {"127.0.0.1"}}).value();
  std::vector<std::unique_ptr<rendezvous::Client>> clients;
  std::vector<std::jthread> threads;
  std::vector<Result<rendezvous::JoinAnswer>> answers(3, Result<rendezvous::JoinAnswer>(Status::internal("none")));
  for (int slot = 0; slot < 3; ++slot) {
    const rendezvous::Incarnation process{.slot = slot, .number = 1};
    seats->set_current(process);
    clients.push_back(std::make_unique<rendezvous::Client>(
        rendezvous::ClientOptions{.host = "127.0.0.1", .port = server->port(), .secret = secret}));
    threads.emplace_back([&, slot, process, client = clients.back().get()] {
      answers[static_cast<std::size_t>(slot)] = client->join({process, rendezvous::seat_token(secret, process)}, {}, {},
                                                             Deadline::after(Millis(10000)), {}, slot == 1 ? 7 : 2);
    });
  }
  const Deadline deadline = Deadline::after(Millis(10000));
  const auto wait_until = [&](const auto& condition) {
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (condition()) return;
      }
      REQUIRE_FALSE(deadline.expired());
      std::this_thread::yield();
    }
  };
  wait_until([&] { return waiting.size() == 3; });
  CHECK_FALSE(plan->withdraw());
  plan->offer({{"a", {0, 1, 3}}});
  server->reconsider();
  CHECK(plan->withdraw());  // slot 3 does not wait
  seats->remove({.slot = 2, .number = 1}, "its host is gone");
  plan->offer({{"a", {0, 1}}});
  server->reconsider();
  wait_until([&] { return !began.empty(); });
  threads.clear();
  CHECK_FALSE(plan->withdraw());
  REQUIRE(answers[1].is_ok());
  CHECK(answers[1].value().numbers == rendezvous::RankNumbers{0, 2, 1, 2, 0, 1});
  CHECK(answers[0].value().numbers == rendezvous::RankNumbers{1, 2, 0, 2, 0, 1});
  CHECK(answers[2].status().message().find("may not go on: its host is gone") != std::string::npos);
  CHECK(began.at(1).rank == 0);

  // News reaches who waits for it in the epoch.
  const std::string scope = rendezvous::scope_of_epoch(answers[0].value().epoch, rendezvous::kHostNewsScope);
  server->publish(rendezvous::kHostNewsScope, "1", rendezvous::encode_host_news({.time_ms = 5, .change = 3}));
  const auto news = clients[1]->wait(scope, "1", deadline);
  REQUIRE(news.is_ok());
  CHECK(rendezvous::decode_host_news(news.value()).value().time_ms == 5);
  CHECK(rendezvous::decode_host_news(news.value()).value().change == 3);
}
