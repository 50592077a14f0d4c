// The agents below an agent: shells that say what an agent would, and what none would say.
#include "launcher/agent/relay.h"

#include <catch2/catch.hpp>
#include <map>

#include "launcher/process/main_loop.h"
#include "launcher/protocol/cookie.h"
#include "test/support/bytes_file.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

class RelayUnderTest {
 public:
  RelayUnderTest()
      : deadline_(loop_.get(), [this] { loop_.stop(); }),
        relay_(loop_,
               {.send = [this](int agent, FrameType type, const Bytes& payload) { from_below(agent, type, payload); },
                .on_gone = [this] { look(); }}) {}

  // What leads to the agent is this script; `$1` is the agent's hello line without its end.
  Status open(int agent, const std::string& script) {
    const std::string cookie = make_cookie();
    std::string line = hello_line(cookie);
    line.pop_back();
    return relay_.open({.agent = agent,
                        .host = "h" + std::to_string(agent),
                        .agent_path = "horovodrun",
                        .cookie = cookie,
                        .argv = {"sh", "-c", script, "sh", line}});
  }
  template <typename Condition>
  void run_until(Condition condition) {
    condition_ = condition;
    deadline_.start(Millis(20000));
    while (!condition() && deadline_.active()) loop_.run();
    condition_ = nullptr;
    INFO(so_far());
    REQUIRE(condition());
  }
  Relay& relay() { return relay_; }
  std::size_t bytes(int agent) const { return bytes_.contains(agent) ? bytes_.at(agent) : 0; }
  std::string lost(int agent) const { return lost_.contains(agent) ? lost_.at(agent) : ""; }
  void rest() {  // what is under way comes
    loop::Timer soon(loop_.get(), [this] { loop_.stop(); });
    soon.start(Millis(50));
    loop_.run();
  }

 private:
  std::string so_far() const {
    std::string text;
    for (const auto& [agent, size] : bytes_) {
      text += "agent " + std::to_string(agent) + ": " + std::to_string(size) + " bytes " + lost(agent) + "\n";
    }
    return text;
  }
  void from_below(int agent, FrameType type, const Bytes& payload) {
    bytes_[agent] += payload.size();
    if (type == FrameType::kLost) lost_[agent] = decode<TextMessage>(payload).value().text;
    look();
  }
  // A stop while the loop does not run would be the end of its next run.
  void look() {
    if (condition_ && condition_()) loop_.stop();
  }

  MainLoop loop_;
  loop::Timer deadline_;
  std::map<int, std::size_t> bytes_;
  std::map<int, std::string> lost_;
  std::function<bool()> condition_;
  Relay relay_;
};

Bytes output(std::size_t size) {
  const OutputMessage message{
      .process = {.slot = 0, .number = 1}, .stream = OutputStream::kStdout, .bytes = Bytes(size)};
  return encode_frame(FrameType::kOutput, kOwnAgent, encode(message));
}

constexpr const char* kHello = "echo \"$1\"; ";

}  // namespace

TEST_CASE("A relay that is paused soon takes nothing from those below, and loses nothing", "[agent]") {
  RelayUnderTest relay;
  const test::BytesFile frame(output(60000));
  const std::string flood = kHello + std::string("while :; do cat ") + frame.path() + "; done";
  REQUIRE(relay.open(1, flood).is_ok());
  REQUIRE(relay.open(2, flood).is_ok());
  relay.run_until([&] { return relay.bytes(1) > 500000 && relay.bytes(2) > 500000; });
  relay.relay().pause(true);
  const std::size_t at_first = relay.bytes(1) + relay.bytes(2);
  relay.rest();
  const std::size_t before = relay.bytes(1) + relay.bytes(2);
  CHECK(before - at_first <= 4 * 60100);  // of each one more piece, which may be of two frames
  relay.rest();
  CHECK(relay.bytes(1) + relay.bytes(2) == before);
  relay.relay().pause(false);
  relay.run_until([&] { return relay.bytes(1) + relay.bytes(2) > before + 1000000; });
  CHECK(relay.lost(1).empty());
  relay.relay().give_up();
}

TEST_CASE("Who does not read is given up, and the others go on", "[agent]") {
  RelayUnderTest relay;
  REQUIRE(relay.open(1, std::string(kHello) + "exec sleep 1000").is_ok());
  // Says what it gets, as frames, which these are.
  REQUIRE(relay.open(2, std::string(kHello) + "exec cat").is_ok());
  const Bytes payload(200000);
  std::size_t sent = 0;
  for (; sent < 200 && relay.lost(1).empty(); ++sent) {
    REQUIRE(relay.relay().pass({FrameType::kStart, 1, payload}).is_ok());
  }
  CHECK(sent * payload.size() > Relay::kMaxQueued);
  CHECK(sent * payload.size() < Relay::kMaxQueued + 1000000);
  CHECK(relay.lost(1) == "lost host h1: its agent does not take what is sent to it, of which 20 MiB wait");
  CHECK(relay.relay().pass({FrameType::kStart, 1, payload}).is_ok());  // it was on its way
  REQUIRE(relay.relay().pass({FrameType::kStart, 2, payload}).is_ok());
  relay.run_until([&] { return relay.bytes(2) == payload.size(); });
  CHECK(relay.lost(2).empty());
  CHECK_FALSE(relay.relay().empty());
  REQUIRE(relay.relay().pass({FrameType::kCloseBelow, 2, {}}).is_ok());
  CHECK(relay.relay().empty());
}

TEST_CASE("An agent that calls itself lost is ended, and nobody waits for it", "[agent]") {
  RelayUnderTest relay;
  const test::BytesFile frame(encode_frame(FrameType::kLost, kOwnAgent, encode(TextMessage{"I am lost"})));
  REQUIRE(relay.open(1, kHello + ("cat " + frame.path()) + "; exec sleep 1000").is_ok());
  relay.run_until([&] { return !relay.lost(1).empty(); });
  CHECK(relay.lost(1) == "host h1: its agent says that it is lost");
  CHECK(relay.relay().empty());
}

TEST_CASE("What is garbled on its way up costs the agent that has sent it", "[agent]") {
  RelayUnderTest relay;
  const Bytes good = output(100);
  Bytes bad = good;
  SECTION("a header") { bad[5] = 99; }
  SECTION("a size over the limit") { bad[2] = 200; }
  SECTION("an end") { bad.back() = 'x'; }
  SECTION("another's number") { bad[8] = 2; }
  Bytes both = good;
  both.insert(both.end(), bad.begin(), bad.end());
  const test::BytesFile frames(both);
  REQUIRE(relay.open(2, std::string(kHello) + "exec cat").is_ok());
  REQUIRE(relay.open(1, kHello + ("cat " + frames.path()) + "; exec sleep 1000").is_ok());
  relay.run_until([&] { return !relay.lost(1).empty(); });
  CHECK(relay.lost(1).starts_with("host h1: "));
  CHECK(relay.bytes(1) > 100);  // the first was passed on
  CHECK(relay.lost(2).empty());
  relay.relay().give_up();
}

TEST_CASE("Those below get the launch frame of the agent above, with what is their own", "[agent]") {
  RelayUnderTest relay;
  LaunchMessage common{.secret = crypto::Secret::random(),
                       .cwd = "/x",
                       .env = {{"A", "b"}},
                       .command = {"true"},
                       .rendezvous_port = 7,
                       .rendezvous_addresses = {"10.0.0.1"},
                       .slots = 9};
  const auto launch = [&](int agent) {
    const Bytes payload = encode(LaunchBelowMessage{.rendezvous_addresses = {"10.0.0.2"}, .slots = 3});
    return relay.relay().pass({FrameType::kLaunchBelow, static_cast<std::uint32_t>(agent), payload});
  };
  REQUIRE(relay.open(1, std::string(kHello) + "exec cat").is_ok());
  CHECK_FALSE(launch(1).is_ok());  // before ours
  relay.relay().keep(common);
  REQUIRE(launch(1).is_ok());
  common.rendezvous_addresses = {"10.0.0.2"};
  common.slots = 3;
  relay.run_until([&] { return relay.bytes(1) == encode(common).size(); });
  CHECK_FALSE(launch(1).is_ok());  // twice
  relay.relay().give_up();
}

TEST_CASE("A relay takes no frames for agents that it was not told to start", "[agent]") {
  RelayUnderTest relay;
  CHECK(relay.relay().pass({FrameType::kStart, 5, {}}).message() ==
        "an agent got a frame for agent 5, which it was not told to start");
  REQUIRE(relay.open(5, "exit 127").is_ok());
  CHECK_FALSE(relay.open(5, "exit 127").is_ok());
  relay.run_until([&] { return relay.relay().empty(); });
  CHECK(relay.lost(5) ==
        "host h5: there is no horovodrun; install the same version there, or name it with --agent-path");
}
