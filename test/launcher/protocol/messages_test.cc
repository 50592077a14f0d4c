#include "launcher/protocol/messages.h"

#include <catch2/catch.hpp>

#include "launcher/protocol/frame.h"
#include "test/support/layout.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

LaunchMessage sample() {
  return {.secret = crypto::Secret::random(),
          .cwd = "/work dir",
          .env = {{"PATH", "/bin"}, {"EMPTY", ""}, {"LINES", "a\nb=c"}},
          .command = {"python", "train.py", "", "--x='1'"},
          .rendezvous_port = 4242,
          .rendezvous_addresses = {"10.0.0.1", "::1"},
          .ignored_signals = std::uint64_t{1} << 63 | 2,
          .slots = 2,
          .announces_threads = true,
          .grace_ms = 7,
          .binding = {.bind = Bind::kNuma, .one_gpu = true, .grows = true},
          .tells_binding = true,
          .needs_cwd = true};
}

StartMessage sample_start() {
  return {.process = {.slot = 3, .number = 2},
          .has_input = true,
          .gives_result = true,
          .env = {{"HOROVOD_RANK", "3"}, {"EMPTY", ""}}};
}

constexpr Incarnation kProcess{.slot = 3, .number = 2};
constexpr Incarnation kNoSlot{.slot = -1, .number = 1};
constexpr Incarnation kNoNumber{.slot = 0, .number = 0};

std::string error_of(const LaunchMessage& message) {
  const auto result = decode_launch(encode(message));
  return result.is_ok() ? "" : result.status().message();
}

}  // namespace

TEST_CASE("The launch message survives the round trip", "[unit][launch_protocol]") {
  const LaunchMessage sent = sample();
  const auto result = decode_launch(encode(sent));
  REQUIRE(result.is_ok());
  const LaunchMessage& got = result.value();
  CHECK(to_hex(got.secret.bytes()) == to_hex(sent.secret.bytes()));
  CHECK(got.cwd == sent.cwd);
  CHECK(got.env == sent.env);
  CHECK(got.command == sent.command);
  CHECK(got.rendezvous_port == sent.rendezvous_port);
  CHECK(got.rendezvous_addresses == sent.rendezvous_addresses);
  CHECK(got.ignored_signals == sent.ignored_signals);
  CHECK(got.slots == sent.slots);
  CHECK(got.announces_threads);
  CHECK(got.grace_ms == sent.grace_ms);
  CHECK(got.binding.bind == Bind::kNuma);
  CHECK(got.binding.one_gpu);
  CHECK(got.binding.grows);
  CHECK(got.tells_binding);
  CHECK(got.needs_cwd);
}

TEST_CASE("The launch message is refused when it makes no sense", "[unit][launch_protocol]") {
  LaunchMessage message = sample();
  SECTION("a binding that there is not") {
    message.binding.bind = static_cast<Bind>(4);
    CHECK(error_of(message) == "launch frame: binding 4: expected 0 .. 3");
  }
  SECTION("no command") {
    message.command.clear();
    CHECK(error_of(message) == "launch frame: there is no command");
  }
  SECTION("no slots, or too many") {
    message.slots = 0;
    CHECK(error_of(message) == "launch frame: slots 0: expected 1 .. 4096");
    message.slots = 4097;
    CHECK(error_of(message) == "launch frame: slots 4097: expected 1 .. 4096");
  }
  SECTION("a variable whose name holds '='") {
    message.env[0].first = "A=B";
    CHECK(error_of(message) == "launch frame: 'A=B' is not the name of a variable");
  }
  SECTION("a NUL byte that would cut an argument short") {
    message.command[1] = std::string("a\0b", 3);
    CHECK(error_of(message) == "launch frame: a string holds a NUL byte");
  }
  SECTION("no rendezvous address") {
    message.rendezvous_addresses.clear();
    CHECK(error_of(message) == "launch frame: there is no rendezvous address");
  }
}

TEST_CASE("The start message survives the round trip, and is refused when it makes no sense",
          "[unit][launch_protocol]") {
  const auto result = decode<StartMessage>(encode(sample_start()));
  REQUIRE(result.is_ok());
  CHECK(result.value().process == kProcess);
  CHECK(result.value().has_input);
  CHECK(result.value().gives_result);
  CHECK(result.value().env == sample_start().env);
  StartMessage message = sample_start();
  const auto error = [&message] { return decode<StartMessage>(encode(message)).status().message(); };
  message.process.slot = -1;
  CHECK(error() == "start frame: slot -1: expected 0 .. 2147483647");
  message.process = {.slot = 0, .number = 0};
  CHECK(error() == "start frame: incarnation 0, expected 1 or more");
  message.process = kProcess;
  message.env[0].first = "";
  CHECK(error() == "start frame: '' is not the name of a variable");
}

TEST_CASE("The launch message is refused when it is cut anywhere", "[unit][launch_protocol]") {
  const Bytes whole = encode(sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(decode_launch(ByteSpan(whole).first(size)).is_ok());
  }
  Bytes longer = whole;
  longer.push_back(0);
  CHECK_FALSE(decode_launch(longer).is_ok());
}

TEST_CASE("The agents' messages survive the round trip", "[unit][launch_protocol]") {
  const auto started = decode<StartedMessage>(encode(StartedMessage{kProcess, 1234}));
  REQUIRE(started.is_ok());
  CHECK(started.value().process == kProcess);
  CHECK(started.value().pid == 1234);

  const auto output = decode<OutputMessage>(encode(OutputMessage{kProcess, OutputStream::kResult, Bytes{0, 255, 10}}));
  REQUIRE(output.is_ok());
  CHECK(output.value().process == kProcess);
  CHECK(output.value().stream == OutputStream::kResult);
  CHECK(output.value().bytes == Bytes{0, 255, 10});
  CHECK(decode<OutputEndMessage>(encode(OutputEndMessage{kProcess, OutputStream::kStderr})).value().process ==
        kProcess);

  CHECK(decode<FailingMessage>(encode(FailingMessage{kProcess})).value().process == kProcess);
  CHECK_FALSE(decode<FailingMessage>(encode(FailingMessage{kProcess})).value().is_leaving);
  CHECK(decode<FailingMessage>(encode(FailingMessage{kProcess, true})).value().is_leaving);
  const rendezvous::RankWork work{.collectives = 1, .bytes = ~std::uint64_t{0}, .waited_us = 3, .session_us = 4};
  CHECK(decode<WorkedMessage>(encode(WorkedMessage{kProcess, work})).value().work == work);
  CHECK(decode<StoppedMessage>(encode(StoppedMessage{kProcess, true})).value().is_stopped);
  CHECK(decode<StacksMessage>(encode(StacksMessage{kProcess, "File x"})).value().text == "File x");
  const auto ended = decode<EndedMessage>(encode(EndedMessage{kProcess, 0, 9}));
  REQUIRE(ended.is_ok());
  CHECK(ended.value().process == kProcess);
  CHECK(ended.value().signal == 9);

  const auto refused = decode<NotStartedMessage>(encode(NotStartedMessage{kProcess, 127, "command not found: x"}));
  REQUIRE(refused.is_ok());
  CHECK(refused.value().reason == "command not found: x");

  const auto hello = decode<HelloMessage>(encode(HelloMessage{"1.2.3", "node", 77}));
  REQUIRE(hello.is_ok());
  CHECK(hello.value().version == "1.2.3");
  CHECK(hello.value().node == "node");
}

TEST_CASE("The launcher's orders to slots survive the round trip", "[unit][launch_protocol]") {
  const auto signal = decode<SignalMessage>(encode(SignalMessage{.slot = 4, .signal = 15}));
  REQUIRE(signal.is_ok());
  CHECK(signal.value().slot == 4);
  CHECK(signal.value().signal == 15);
  CHECK(decode<SignalMessage>(encode(SignalMessage{.signal = 2})).value().slot == SignalMessage::kAllSlots);
  const auto stop = decode<StopMessage>(encode(StopMessage{.slot = 5, .grace_ms = 2500}));
  REQUIRE(stop.is_ok());
  CHECK(stop.value().slot == 5);
  CHECK(stop.value().grace_ms == 2500);
}

TEST_CASE("Input survives the round trip, its end as well", "[unit][launch_protocol]") {
  const auto input = decode<InputMessage>(encode(InputMessage{kProcess, Bytes{0, 255, 10}}));
  REQUIRE(input.is_ok());
  CHECK(input.value().process == kProcess);
  CHECK(input.value().bytes == Bytes{0, 255, 10});
  CHECK(decode<InputMessage>(encode(InputMessage{kProcess, {}})).value().bytes.empty());
  CHECK_FALSE(decode<InputMessage>(encode(InputMessage{kNoSlot, {}})).is_ok());
  CHECK_FALSE(decode<InputMessage>(encode(InputMessage{kProcess, Bytes(kMaxInputChunk + 1)})).is_ok());
  const auto taken = decode<InputTakenMessage>(encode(InputTakenMessage{kProcess, 70000}));
  REQUIRE(taken.is_ok());
  CHECK(taken.value().process == kProcess);
  CHECK(taken.value().size == 70000);
}

TEST_CASE("Messages with values out of range are refused", "[unit][launch_protocol]") {
  CHECK(decode<StartedMessage>(encode(StartedMessage{kNoSlot, 1})).status().message() ==
        "started frame: slot -1: expected 0 .. 2147483647");
  CHECK(decode<StartedMessage>(encode(StartedMessage{kNoNumber, 1})).status().message() ==
        "started frame: incarnation 0, expected 1 or more");
  CHECK_FALSE(decode<FailingMessage>(encode(FailingMessage{kNoSlot})).is_ok());
  CHECK_FALSE(decode<StacksMessage>(encode(StacksMessage{kNoSlot, ""})).is_ok());
  CHECK_FALSE(decode<SignalMessage>(encode(SignalMessage{.signal = 0})).is_ok());
  CHECK_FALSE(decode<SignalMessage>(encode(SignalMessage{.signal = 65})).is_ok());
  CHECK_FALSE(decode<SignalMessage>(encode(SignalMessage{.slot = -2, .signal = 1})).is_ok());
  CHECK_FALSE(decode<StopMessage>(encode(StopMessage{.slot = -1})).is_ok());
  CHECK_FALSE(decode<EndedMessage>(encode(EndedMessage{kProcess, 256, 0})).is_ok());
  CHECK_FALSE(decode<NotStartedMessage>(encode(NotStartedMessage{kProcess, 0, ""})).is_ok());
  CHECK_FALSE(decode<ShutdownMessage>(Bytes{2}).is_ok());
  CHECK_FALSE(decode<OutputMessage>(encode(OutputMessage{kProcess, OutputStream::kStdout, Bytes(kMaxOutputChunk + 1)}))
                  .is_ok());
}

TEST_CASE("The largest output chunk fits into a frame", "[unit][launch_protocol]") {
  CHECK(encode(OutputMessage{kProcess, OutputStream::kStdout, Bytes(kMaxOutputChunk)}).size() <= kMaxOtherBytes);
  CHECK(encode(TextMessage{std::string(1'000'000, 'x')}).size() <= kMaxOtherBytes);
}

// Each with the type and the number of its frame.
TEST_CASE("The layout of frames is that of this protocol version", "[unit][launch_protocol]") {
  CHECK(kAgentProtocolVersion == 5);
  const auto layout = [](FrameType type, const auto& message) {
    return test::layout_of(encode_frame(type, 7, encode(message)));
  };
  LaunchMessage launch = sample();
  launch.secret = crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 1)).value();
  const OpenBelowMessage open{
      .agent = 3, .host = "n3", .agent_path = "/bin/hvd", .cookie = std::string(32, 'a'), .argv = {"ssh", "", "n3"}};
  CHECK(layout(FrameType::kLaunch, launch) == 0xab5fa0735e4264b7);
  CHECK(layout(FrameType::kSignal, SignalMessage{.slot = 4, .signal = 15}) == 0xd43aa2d923b5f813);
  CHECK(layout(FrameType::kShutdown, ShutdownMessage{true}) == 0xfad46caf9261de4a);
  CHECK(layout(FrameType::kInput, InputMessage{kProcess, Bytes{0, 255, 10}}) == 0x5b41e5753fdccc53);
  CHECK(layout(FrameType::kStart, sample_start()) == 0xe11b32033c85d03c);
  CHECK(layout(FrameType::kStop, StopMessage{.slot = 5, .grace_ms = 2500}) == 0xc68874d91271a130);
  CHECK(layout(FrameType::kOpenBelow, open) == 0x98b66775b2a9fc2);
  CHECK(layout(FrameType::kLaunchBelow, LaunchBelowMessage{{"10.0.0.1", "::1"}, 2, true}) == 0x6456bb79c317d499);
  CHECK(layout(FrameType::kHello, HelloMessage{"1.2.3", "node", 77}) == 0x952e884440b76e84);
  CHECK(layout(FrameType::kStarted, StartedMessage{kProcess, 1234}) == 0x58b84b33ab79bd60);
  CHECK(layout(FrameType::kNotStarted, NotStartedMessage{kProcess, 127, "not found"}) == 0x317b146c5c225ac0);
  CHECK(layout(FrameType::kOutput, OutputMessage{kProcess, OutputStream::kResult, Bytes{1, 2}}) == 0xeca75c9aa2f0554f);
  CHECK(layout(FrameType::kOutputEnd, OutputEndMessage{kProcess, OutputStream::kStderr}) == 0xb66e995a31308a82);
  CHECK(layout(FrameType::kEnded, EndedMessage{kProcess, 1, 9, 2, true}) == 0x8e6594a7d2970a47);
  CHECK(layout(FrameType::kNotice, TextMessage{"a notice"}) == 0x2ebcb7552c015771);
  CHECK(layout(FrameType::kFailing, FailingMessage{kProcess, true}) == 0x7d8ea9703879841);
  CHECK(layout(FrameType::kInputTaken, InputTakenMessage{kProcess, 70000}) == 0x405b557c91c9b90f);
  CHECK(layout(FrameType::kStacks, StacksMessage{kProcess, "File x"}) == 0xff68aafaa3380d7f);
  CHECK(layout(FrameType::kDraining, DrainingMessage{6}) == 0xfacbe24b563ca480);
  CHECK(layout(FrameType::kStopped, StoppedMessage{kProcess, true}) == 0x549f4ea91c98776b);
  CHECK(layout(FrameType::kStalled, StalledMessage{kProcess, 8}) == 0x861d9044c82f135a);
  CHECK(layout(FrameType::kWorked, WorkedMessage{kProcess, {1, 2, 3, 4}}) == 0xb207cf8cce503a9d);
}

TEST_CASE("What agents are told of those below them survives the round trip, and is refused when it makes no sense",
          "[unit][launch_protocol]") {
  OpenBelowMessage open{.agent = 3,
                        .host = "n3",
                        .agent_path = "/bin/horovodrun",
                        .cookie = std::string(32, 'a'),
                        .argv = {"ssh", "", "n3"}};
  const OpenBelowMessage got = decode<OpenBelowMessage>(encode(open)).value();
  CHECK(got.agent == 3);
  CHECK(got.host == "n3");
  CHECK(got.agent_path == "/bin/horovodrun");
  CHECK(got.cookie == open.cookie);
  CHECK(got.argv == open.argv);
  const auto error = [&open] { return decode<OpenBelowMessage>(encode(open)).status().message(); };
  open.agent = -1;
  CHECK(error() == "open-below frame: agent -1: expected 0 .. 2147483647");
  open.agent = 0;
  open.cookie = "no";
  CHECK(error() == "open-below frame: the cookie is not one");
  open.cookie = got.cookie;
  open.argv = {""};
  CHECK(error() == "open-below frame: there is nothing to execute");

  LaunchBelowMessage launch{.rendezvous_addresses = {"10.0.0.1", "::1"}, .slots = 2, .announces_threads = true};
  CHECK(decode<LaunchBelowMessage>(encode(launch)).value().rendezvous_addresses == launch.rendezvous_addresses);
  CHECK(decode<LaunchBelowMessage>(encode(launch)).value().slots == 2);
  CHECK(decode<LaunchBelowMessage>(encode(launch)).value().announces_threads);
  launch.slots = 0;
  CHECK(decode<LaunchBelowMessage>(encode(launch)).status().message() ==
        "launch-below frame: slots 0: expected 1 .. 4096");
}
