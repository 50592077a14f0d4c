#include "launcher/fleet/agent_fleet.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/protocol/cookie.h"
#include "launcher/protocol/messages.h"
#include "test/support/bytes_file.h"

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

// An agent behind `argv`, which is as ssh to the fleet.
AgentLinkOptions behind_ssh(int agent, std::vector<std::string> argv) {
  AgentLinkOptions options;
  options.agent = agent;
  options.host = "h" + std::to_string(agent);
  options.is_remote = true;
  options.over_ssh = true;
  options.file = argv.front();
  options.argv = std::move(argv);
  options.cookie = std::string(32, '0');
  return options;
}

}  // namespace

TEST_CASE("AgentFleet reports processes that cannot be started one after another, not one inside another", "[job]") {
  MainLoop loop;
  Events events(loop);
  events.count = static_cast<int>(AgentFleet::kMaxConnecting) + 20;
  AgentFleet fleet(loop, [](int agent) { return behind_ssh(agent, {"no-such-ssh"}); }, events);
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
        return behind_ssh(agent, {"cat"});  // says nothing, and ends with its input
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

TEST_CASE("AgentFleet tries nobody again once all are dropped", "[job]") {
  MainLoop loop;
  Events events(loop);
  int started = 0;
  AgentFleet fleet(
      loop,
      [&](int agent) {
        ++started;
        return behind_ssh(agent, {"sh", "-c", "echo Connection reset by peer >&2; exit 255"});
      },
      events);
  fleet.start(0);
  loop::Timer end(loop.get(), [&] { loop.stop(); });
  loop::Timer look(loop.get(), [&] {
    if (!fleet.pids().empty()) return look.start(Millis(20));
    fleet.drop_all();
    end.start(Millis(1400));  // the next try would be due
  });
  look.start(Millis(20));
  loop.run();
  CHECK(started == 1);
}

namespace {

// Of agent 0, which is to start the others: what it says, besides its hello, and what becomes of all.
struct TreeEvents : AgentFleetEvents {
  explicit TreeEvents(MainLoop& main) : loop(main), deadline(main.get(), [this] { loop.stop(); }) {}
  void fleet_frame(int agent, const Frame& frame) override {
    said.push_back("frame of " + std::to_string(agent));
    if (agent == 0 && frame.type == FrameType::kHello) fleet->open_below(0);
    if (frame.type == FrameType::kError) fleet->fail(agent, "no good");
    if (said.size() == wanted) loop.stop();
  }
  void fleet_lost(int agent, const std::string& reason) override {
    said.push_back("lost " + std::to_string(agent) + ": " + reason);
    if (said.size() == wanted) loop.stop();
  }
  void fleet_is_flat(const std::string& why) override { said.push_back("flat: " + why); }
  AgentLinkOptions options_of(int agent) const {
    const std::string end = agent == 0 ? "exec cat > /dev/null" : "exec sleep 1000";
    auto options = behind_ssh(agent, {"sh", "-c", "cat " + (agent == 0 ? inner : leaf)->path() + "; " + end});
    options.over_ssh = false;
    return options;
  }
  std::vector<std::string> run(ByteSpan frames, std::size_t events, Millis patience = Millis(20000)) {
    const std::string line = hello_line(std::string(32, '0'));
    Bytes leaf_bytes(line.begin(), line.end());
    const Bytes hello = encode_frame(FrameType::kHello, kOwnAgent, encode(HelloMessage{}));
    leaf_bytes.insert(leaf_bytes.end(), hello.begin(), hello.end());
    leaf = std::make_unique<test::BytesFile>(leaf_bytes);
    leaf_bytes.insert(leaf_bytes.end(), frames.begin(), frames.end());
    inner = std::make_unique<test::BytesFile>(leaf_bytes);
    wanted = events;
    fleet = std::make_unique<AgentFleet>(loop, [this](int agent) { return options_of(agent); }, *this, patience);
    fleet->start(0);
    for (const int agent : {1, 2}) fleet->start(agent, 0);
    deadline.start(Millis(20000));
    loop.run();
    fleet->drop_all();
    // Who is started from here answers when it likes.
    const auto flat = std::ranges::find_if(said, [](const std::string& what) { return what.starts_with("flat"); });
    if (flat != said.end()) std::sort(flat + 1, said.end());
    return said;
  }
  MainLoop& loop;
  loop::Timer deadline;
  std::unique_ptr<test::BytesFile> inner, leaf;
  std::unique_ptr<AgentFleet> fleet;
  std::vector<std::string> said;
  std::size_t wanted = 0;
};

Bytes frames_of(std::initializer_list<std::pair<std::uint32_t, FrameType>> list) {
  Bytes all;
  for (const auto& [agent, type] : list) {
    const Bytes frame = encode_frame(type, agent, type == FrameType::kLost ? encode(TextMessage{"no key"}) : Bytes());
    all.insert(all.end(), frame.begin(), frame.end());
  }
  return all;
}

using Said = std::vector<std::string>;

}  // namespace

TEST_CASE("Frames of agents that another has started come under their own names", "[job]") {
  MainLoop loop;
  TreeEvents events(loop);
  const Bytes frames = frames_of({{2, FrameType::kAlive}, {0, FrameType::kAlive}, {1, FrameType::kAlive}});
  CHECK(events.run(frames, 4) == Said{"frame of 0", "frame of 2", "frame of 0", "frame of 1"});
}

TEST_CASE("Agents that another cannot start are started from here, and that is said once", "[job]") {
  MainLoop loop;
  TreeEvents events(loop);
  SECTION("none of them") {
    const Bytes frames = frames_of({{1, FrameType::kLost}, {2, FrameType::kLost}});
    CHECK(events.run(frames, 4) == Said{"frame of 0", "flat: host h0 says: no key", "frame of 1", "frame of 2"});
  }
  SECTION("those that have answered stay") {
    const Bytes frames = frames_of({{2, FrameType::kHello}, {1, FrameType::kLost}});
    CHECK(events.run(frames, 4) == Said{"frame of 0", "frame of 2", "flat: host h0 says: no key", "frame of 1"});
  }
  SECTION("it says nothing of them") {
    CHECK(events.run({}, 4, Millis(20)) ==
          Said{"frame of 0", "flat: they have not answered there", "frame of 1", "frame of 2"});
  }
}

TEST_CASE("An agent that is lost takes along those that it has started, after itself", "[job]") {
  MainLoop loop;
  TreeEvents events(loop);
  const std::string below = ": its agent was started by that of host h0, which is lost";
  const Bytes heard = frames_of({{1, FrameType::kHello}, {2, FrameType::kHello}});
  SECTION("one of those below first") {
    Bytes frames = heard;
    const Bytes lost = frames_of({{2, FrameType::kLost}, {2, FrameType::kAlive}, {1, FrameType::kAlive}});
    frames.insert(frames.end(), lost.begin(), lost.end());
    CHECK(events.run(frames, 5) == Said{"frame of 0", "frame of 1", "frame of 2",
                                        "lost 2: no key (its agent was started by that of host h0)", "frame of 1"});
  }
  SECTION("what it sends is garbled") {
    Bytes frames = heard;
    frames.resize(frames.size() + 20);
    CHECK(events.run(frames, 6) == Said{"frame of 0", "frame of 1", "frame of 2",
                                        "lost 0: host h0: frame of protocol version 0, this program speaks 5",
                                        "lost 1: lost host h1" + below, "lost 2: lost host h2" + below});
  }
  SECTION("what it says is taken for a fault") {
    Bytes frames = heard;
    const Bytes error = frames_of({{0, FrameType::kError}, {1, FrameType::kAlive}});
    frames.insert(frames.end(), error.begin(), error.end());
    CHECK(events.run(frames, 7) == Said{"frame of 0", "frame of 1", "frame of 2", "frame of 0", "lost 0: no good",
                                        "lost 1: lost host h1" + below, "lost 2: lost host h2" + below});
  }
  SECTION("what one below says is taken for a fault") {
    Bytes frames = heard;
    const Bytes error = frames_of({{1, FrameType::kError}, {1, FrameType::kAlive}, {2, FrameType::kAlive}});
    frames.insert(frames.end(), error.begin(), error.end());
    CHECK(events.run(frames, 6) ==
          Said{"frame of 0", "frame of 1", "frame of 2", "frame of 1", "lost 1: no good", "frame of 2"});
  }
  SECTION("it speaks for others") {
    const Bytes frames = frames_of({{1, FrameType::kHello}, {7, FrameType::kHello}});
    CHECK(events.run(frames, 5) == Said{"frame of 0", "frame of 1",
                                        "lost 0: host h0: its agent speaks for agent 7, which it was not told to start",
                                        "lost 1: lost host h1" + below, "lost 2: lost host h2" + below});
  }
}

TEST_CASE("plan_tree shares hosts out equally, and leaves those at the root that have to be there", "[job]") {
  const auto plan = [](const std::string& hosts, std::size_t fan_out) {  // '-': stays at the root
    std::vector<bool> may_be_below;
    for (const char c : hosts) may_be_below.push_back(c != '-');
    return plan_tree(may_be_below, fan_out);
  };
  CHECK(plan("", 1).empty());
  CHECK(plan("xxx", 3) == std::vector<int>{-1, -1, -1});
  CHECK(plan("xxx", 1) == std::vector<int>{-1, 0, 0});
  CHECK(plan("xxxxx", 2) == std::vector<int>{-1, 0, 0, -1, 3});
  CHECK(plan("-x-xx-x", 2) == std::vector<int>{-1, -1, -1, 1, -1, -1, 4});
  const std::vector<int> large = plan(std::string(2000, 'x'), 64);
  std::map<int, int> groups;
  for (int agent = 0; agent < 2000; ++agent) {
    const int parent = large[static_cast<std::size_t>(agent)];
    CHECK(parent < agent);
    ++groups[parent == kLauncher ? agent : parent];
    if (parent != kLauncher) CHECK(large[static_cast<std::size_t>(parent)] == kLauncher);
  }
  CHECK(groups.size() == 64);
  for (const auto& [inner, size] : groups) CHECK((size == 31 || size == 32));
}
