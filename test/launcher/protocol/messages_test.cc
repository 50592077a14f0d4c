#include "launcher/protocol/messages.h"

#include <catch2/catch.hpp>

#include "launcher/protocol/frame.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

LaunchMessage sample() {
  return {.secret = crypto::Secret::random(),
          .hostname = "node-1",
          .cwd = "/work dir",
          .env = {{"PATH", "/bin"}, {"EMPTY", ""}, {"LINES", "a\nb=c"}},
          .command = {"python", "train.py", "", "--x='1'"},
          .ranks = {{2, 4, 0, 2, 1, 2}, {3, 4, 1, 2, 1, 2}},
          .rendezvous_port = 4242,
          .rendezvous_addresses = {"10.0.0.1", "::1"},
          .ignored_signals = std::uint64_t{1} << 63 | 2,
          .input_ranks = {3}};
}

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
  CHECK(got.hostname == sent.hostname);
  CHECK(got.cwd == sent.cwd);
  CHECK(got.env == sent.env);
  CHECK(got.command == sent.command);
  CHECK(got.ranks == sent.ranks);
  CHECK(got.rendezvous_port == sent.rendezvous_port);
  CHECK(got.rendezvous_addresses == sent.rendezvous_addresses);
  CHECK(got.ignored_signals == sent.ignored_signals);
  CHECK(got.input_ranks == sent.input_ranks);
}

TEST_CASE("The launch message is refused when it makes no sense", "[unit][launch_protocol]") {
  LaunchMessage message = sample();
  SECTION("no command") {
    message.command.clear();
    CHECK(error_of(message) == "launch frame: the launch frame has no command");
  }
  SECTION("no ranks") {
    message.ranks.clear();
    CHECK(error_of(message) == "launch frame: the launch frame has no ranks");
  }
  SECTION("a rank twice") {
    message.ranks[1].rank = 2;
    CHECK(error_of(message) == "launch frame: rank 2 is there twice");
  }
  SECTION("a rank outside the job") {
    message.ranks[1].rank = 4;
    CHECK(error_of(message) == "launch frame: rank 4 of 4 has no valid place");
  }
  SECTION("a variable whose name holds '='") {
    message.env[0].first = "A=B";
    CHECK(error_of(message) == "launch frame: 'A=B' is not the name of a variable");
  }
  SECTION("a NUL byte that would cut an argument short") {
    message.command[1] = std::string("a\0b", 3);
    CHECK(error_of(message) == "launch frame: a string of the launch frame holds a NUL byte");
  }
  SECTION("no rendezvous address") {
    message.rendezvous_addresses.clear();
    CHECK(error_of(message) == "launch frame: the launch frame has no rendezvous address");
  }
  SECTION("input for a rank that is not there") {
    message.input_ranks = {0};
    CHECK(error_of(message) == "launch frame: rank 0 gets input, but is not there");
  }
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
  const auto started = decode_rank_started(encode(RankStartedMessage{3, 1234}));
  REQUIRE(started.is_ok());
  CHECK(started.value().rank == 3);
  CHECK(started.value().pid == 1234);

  const auto output = decode_output(encode(OutputMessage{1, true, Bytes{0, 255, 10}}));
  REQUIRE(output.is_ok());
  CHECK(output.value().is_stderr);
  CHECK(output.value().bytes == Bytes{0, 255, 10});

  CHECK(decode_rank_failing(encode(RankFailingMessage{7})).value().rank == 7);
  CHECK_FALSE(decode_rank_failing(encode(RankFailingMessage{7})).value().is_leaving);
  CHECK(decode_rank_failing(encode(RankFailingMessage{7, true})).value().is_leaving);
  CHECK_FALSE(decode_rank_failing(encode(RankFailingMessage{-1})).is_ok());
  const auto exited = decode_rank_exited(encode(RankExitedMessage{1, 0, 9}));
  REQUIRE(exited.is_ok());
  CHECK(exited.value().signal == 9);

  const auto refused = decode_rank_not_started(encode(RankNotStartedMessage{1, 127, "command not found: x"}));
  REQUIRE(refused.is_ok());
  CHECK(refused.value().reason == "command not found: x");

  const auto hello = decode_hello(encode(HelloMessage{"1.2.3", "node", 77}));
  REQUIRE(hello.is_ok());
  CHECK(hello.value().version == "1.2.3");
  CHECK(hello.value().node == "node");
}

TEST_CASE("Input survives the round trip, its end as well", "[unit][launch_protocol]") {
  const auto input = decode_input(encode(InputMessage{2, Bytes{0, 255, 10}}));
  REQUIRE(input.is_ok());
  CHECK(input.value().rank == 2);
  CHECK(input.value().bytes == Bytes{0, 255, 10});
  CHECK(decode_input(encode(InputMessage{2, {}})).value().bytes.empty());
  CHECK_FALSE(decode_input(encode(InputMessage{-1, {}})).is_ok());
  CHECK_FALSE(decode_input(encode(InputMessage{0, Bytes(kMaxInputChunk + 1)})).is_ok());
  const auto taken = decode_input_taken(encode(InputTakenMessage{2, 70000}));
  REQUIRE(taken.is_ok());
  CHECK(taken.value().rank == 2);
  CHECK(taken.value().size == 70000);
}

TEST_CASE("Messages with values out of range are refused", "[unit][launch_protocol]") {
  CHECK_FALSE(decode_rank_started(encode(RankStartedMessage{-1, 1})).is_ok());
  CHECK_FALSE(decode_signal(encode(SignalMessage{0})).is_ok());
  CHECK_FALSE(decode_signal(encode(SignalMessage{65})).is_ok());
  CHECK_FALSE(decode_rank_exited(encode(RankExitedMessage{0, 256, 0})).is_ok());
  CHECK_FALSE(decode_rank_not_started(encode(RankNotStartedMessage{0, 0, ""})).is_ok());
  CHECK_FALSE(decode_shutdown(Bytes{2}).is_ok());
  CHECK_FALSE(decode_output(encode(OutputMessage{0, false, Bytes(kMaxOutputChunk + 1)})).is_ok());
}

TEST_CASE("The largest output chunk fits into a frame", "[unit][launch_protocol]") {
  CHECK(encode(OutputMessage{0, false, Bytes(kMaxOutputChunk)}).size() <= kMaxOtherBytes);
  CHECK(encode(TextMessage{std::string(1'000'000, 'x')}).size() <= kMaxOtherBytes);
}
