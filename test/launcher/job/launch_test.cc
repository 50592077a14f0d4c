#include "launcher/job/launch.h"

#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <utility>

#include "rendezvous/client/client.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr int kRanks = 3;

JobPlan plan_on_this_host() {
  JobPlan plan;
  HostAssignment host{.host = {.name = "localhost", .user = "", .port = 0, .slots = kRanks}, .ranks = {}};
  for (int rank = 0; rank < kRanks; ++rank) host.ranks.push_back({rank, kRanks, rank, kRanks, 0, 1});
  plan.hosts = {host};
  plan.cwd = "/";
  plan.config.command = {"true"};
  return plan;
}

// The launcher's end of a static job on this host, all of whose processes have been started.
struct LaunchedJob {
  LaunchedJob() {
    REQUIRE(launch.prepare({{.addresses = {"127.0.0.1"}}}, roster).is_ok());
    for (const auto& [number, slot] : roster.slots()) launch.start_frame({.slot = number, .number = 1}, slot, false);
    secret.emplace(decode_launch(launch.launch_frame(0)).value().secret);
  }

  // What the process of the slot gets from the rendezvous in the end.
  std::future<std::string> join(int slot) {
    return std::async(std::launch::async, [this, slot] {
      rendezvous::Client client({.host = "127.0.0.1", .port = launch.server().port(), .secret = *secret});
      const Incarnation process{.slot = slot, .number = 1};
      const rendezvous::Seat seat{.process = process, .token = rendezvous::seat_token(*secret, process)};
      return client.join(seat, {}, {}, Deadline::after(Millis(20000))).status().message();
    });
  }

  const JobPlan plan = plan_on_this_host();
  const Roster roster{plan.hosts};
  Launch launch{plan, {}};
  std::optional<crypto::Secret> secret;
};

}  // namespace

TEST_CASE("Who waits for a process that has ended is told at once, and so is who comes later", "[job]") {
  LaunchedJob job;
  // Of two that join in a seat the first is told that the second has taken it: that one waits then.
  std::future<std::string> either = job.join(0);
  std::future<std::string> other = job.join(0);
  const Deadline deadline = Deadline::after(Millis(10000));
  while (either.wait_for(Millis(0)) != std::future_status::ready) {
    std::swap(either, other);
    REQUIRE_FALSE(deadline.expired());
    either.wait_for(Millis(1));
  }
  CHECK(either.get().find("another process joined in slot 0 and took this one's place") != std::string::npos);

  job.launch.remove_seat({.slot = 1, .number = 1}, "rank 1 has ended");
  CHECK(other.get().ends_with(": rank 1 has ended"));
  CHECK(job.join(2).get().ends_with(": rank 1 has ended"));
  CHECK(job.join(1).get().ends_with("this process may not go on: rank 1 has ended"));
}
