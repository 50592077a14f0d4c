#include "launcher/job/seat_plan.h"

#include <catch2/catch.hpp>

#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr rendezvous::RankNumbers kNumbers{
    .rank = 0, .size = 1, .local_rank = 0, .local_size = 1, .cross_rank = 0, .cross_size = 1};

// A job with one slot, and the real server of its launcher.
struct Job {
  crypto::Secret secret = crypto::Secret::random();
  std::shared_ptr<SeatPlan> plan = std::make_shared<SeatPlan>(std::vector{kNumbers});
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
  const Job job;
  const auto error_of = [&job](std::uint32_t number) {
    return job.join({.slot = 0, .number = number}).status().message();
  };
  CHECK(error_of(1).find("incarnation 1 of slot 0 may not join: the slot has no process now") != std::string::npos);
  job.plan->set_current({.slot = 0, .number = 1});
  const auto first = job.join({.slot = 0, .number = 1});
  REQUIRE(first.is_ok());
  CHECK(first.value().numbers == kNumbers);
  // From the moment in which its successor is started, and before that has joined.
  job.plan->set_current({.slot = 0, .number = 2});
  CHECK(error_of(1).find("incarnation 1 of slot 0 may not join: the slot has incarnation 2 now") != std::string::npos);
  CHECK(error_of(3).find("incarnation 3 of slot 0 may not join: the slot has incarnation 2 now") != std::string::npos);
  const auto second = job.join({.slot = 0, .number = 2});
  REQUIRE(second.is_ok());
  CHECK(second.value().epoch == first.value().epoch + 1);
}
