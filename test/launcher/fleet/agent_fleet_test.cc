#include "launcher/fleet/agent_fleet.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

namespace {

struct Events : AgentFleetEvents {
  explicit Events(MainLoop& main) : loop(main) {}
  void fleet_frame(int, const Frame&) override { FAIL("nobody is there to send a frame"); }
  void fleet_lost(int agent, const std::string& reason) override {
    CHECK_FALSE(inside_start);
    CHECK(agent == lost++);
    CHECK(reason == "host h" + std::to_string(agent) + ": cannot start no-such-ssh: No such file or directory");
    if (lost == count) loop.stop();
  }
  MainLoop& loop;
  bool inside_start = true;
  int lost = 0;
  int count = 0;
};

}  // namespace

TEST_CASE("AgentFleet reports processes that cannot be started one after another, not one inside another", "[job]") {
  MainLoop loop;
  Events events(loop);
  events.count = static_cast<int>(AgentFleet::kMaxConnecting) + 20;
  AgentFleet fleet(
      loop,
      [](int agent) {
        AgentLinkOptions options;
        options.agent = agent;
        options.host = "h" + std::to_string(agent);
        options.is_remote = true;
        options.over_ssh = true;
        options.file = "no-such-ssh";
        options.argv = {"no-such-ssh"};
        options.cookie = std::string(32, '0');
        return options;
      },
      events);
  for (int agent = 0; agent < events.count; ++agent) fleet.start(agent);
  events.inside_start = false;
  loop::Timer deadline(loop.get(), [&] { loop.stop(); });
  deadline.start(Millis(20000));
  loop.run();
  CHECK(events.lost == events.count);
}

TEST_CASE("AgentFleet has 64 logins under way at most, and the next begins when one is over", "[job]") {
  MainLoop loop;
  Events events(loop);
  int started = 0;
  AgentFleet fleet(
      loop,
      [&](int agent) {
        ++started;
        AgentLinkOptions options;
        options.agent = agent;
        options.host = "h" + std::to_string(agent);
        options.is_remote = true;
        options.over_ssh = true;
        options.file = "cat";  // says nothing, and ends with its input
        options.argv = {"cat"};
        options.cookie = std::string(32, '0');
        return options;
      },
      events);
  for (int agent = 0; agent < 70; ++agent) fleet.start(agent);
  CHECK(started == 64);
  fleet.drop(3);
  CHECK(started == 65);
  fleet.drop(69);  // which still waits
  CHECK(started == 65);
  for (const int agent : {4, 5, 6, 7, 8}) fleet.drop(agent);
  CHECK(started == 69);
  fleet.drop_all();
}
