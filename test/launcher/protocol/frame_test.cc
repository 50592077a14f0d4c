#include "launcher/protocol/frame.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("FrameDecoder finds frames wherever the stream is cut", "[unit][launch_protocol]") {
  Bytes stream = encode_frame(FrameType::kHello, 7, as_bytes("one"));
  const Bytes second = encode_frame(FrameType::kDone, 9, {});
  stream.insert(stream.end(), second.begin(), second.end());
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameDecoder decoder;
    std::vector<Frame> frames;
    for (const ByteSpan part : {ByteSpan(stream).first(cut), ByteSpan(stream).subspan(cut)}) {
      decoder.feed(part);
      for (auto next = decoder.next(); next.is_ok() && next.value().has_value(); next = decoder.next()) {
        frames.push_back(*next.value());
      }
    }
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].type == FrameType::kHello);
    CHECK(frames[0].agent == 7);
    CHECK(as_text(frames[0].payload) == "one");
    CHECK(frames[1].type == FrameType::kDone);
    CHECK(frames[1].agent == 9);
    CHECK(frames[1].payload.empty());
    CHECK(decoder.at_boundary());
  }
}

TEST_CASE("FrameDecoder refuses what is not a frame, and goes on refusing", "[unit][launch_protocol]") {
  Bytes frame = encode_frame(FrameType::kDone, 0, {});
  std::string expected;
  SECTION("another version") {
    frame[4] = 99;
    expected = "protocol version 99";
  }
  SECTION("an unknown type") {
    frame[5] = 50;
    expected = "type 50";
  }
  SECTION("a reserved field that is not zero") {
    frame[6] = 1;
    expected = "malformed frame header";
  }
  SECTION("a size over the limit of the type, before the payload has come") {
    frame[2] = 0xff;
    expected = "the limit is 262144";
  }
  SECTION("something else where it ends") {
    frame.back() = 'x';
    expected = "does not end where it says";
  }
  FrameDecoder decoder;
  decoder.feed(frame);
  const auto first = decoder.next();
  REQUIRE_FALSE(first.is_ok());
  CHECK(first.status().message().find(expected) != std::string::npos);
  decoder.feed(encode_frame(FrameType::kDone, 0, {}));
  CHECK_FALSE(decoder.next().is_ok());
}

TEST_CASE("FrameDecoder waits for the rest of a frame", "[unit][launch_protocol]") {
  const Bytes frame = encode_frame(FrameType::kOutput, 0, as_bytes("payload"));
  FrameDecoder decoder;
  decoder.feed(ByteSpan(frame).first(frame.size() - 1));
  const auto next = decoder.next();
  REQUIRE(next.is_ok());
  CHECK_FALSE(next.value().has_value());
  CHECK_FALSE(decoder.at_boundary());
}

TEST_CASE("FrameDecoder gives out frames whole when more comes than it has room for, and in the middle of others",
          "[unit][launch_protocol]") {
  Bytes stream;
  std::vector<Bytes> sent;
  for (const std::size_t size : {std::size_t{1}, kMaxOtherBytes, std::size_t{70000}, kMaxOtherBytes, std::size_t{3}}) {
    Bytes payload(size);
    for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<std::uint8_t>(i * 7 + sent.size());
    const Bytes frame = encode_frame(FrameType::kOutput, 1, payload);
    stream.insert(stream.end(), frame.begin(), frame.end());
    sent.push_back(payload);
  }
  for (const std::size_t chunk : {std::size_t{65536}, std::size_t{1000}, stream.size()}) {
    FrameDecoder decoder;
    std::vector<Bytes> received;
    for (std::size_t at = 0; at < stream.size(); at += chunk) {
      decoder.feed(ByteSpan(stream).subspan(at, std::min(chunk, stream.size() - at)));
      for (auto next = decoder.next(); next.is_ok() && next.value().has_value(); next = decoder.next()) {
        received.push_back(next.value()->payload);
      }
    }
    CHECK(received == sent);
    CHECK(decoder.at_boundary());
  }
}

TEST_CASE("The fuzz target's seeds are frames of this version", "[unit][launch_protocol]") {
  const std::map<std::string, int> frames = {{"a_job", 11}, {"input", 3},  {"launch", 1},
                                             {"orders", 4}, {"stacks", 4}, {"start", 1}};
  for (const auto& [name, expected] : frames) {
    INFO(name);
    std::ifstream file(std::string(HVD_TEST_SOURCE_DIR "/../../fuzz/corpus/launch_frame/") + name, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    FrameDecoder decoder;
    decoder.feed(as_bytes(bytes));
    int found = 0;
    while (decoder.next().value().has_value()) ++found;
    CHECK(found == expected);
    CHECK(decoder.at_boundary());
  }
}
