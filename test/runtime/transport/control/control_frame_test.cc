#include "runtime/transport/control/control_frame.h"

#include <catch2/catch.hpp>

#include "runtime/transport/net/frame_check.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

struct Seen {
  ControlFrameType type;
  std::string text;
};

Status feed(ControlFrameReader& reader, ByteSpan input, std::vector<Seen>& seen) {
  return reader.feed(input, [&](const ControlFrame& frame) {
    seen.push_back({frame.type, std::string(as_text(frame.payload))});
    return true;
  });
}

}  // namespace

TEST_CASE("Control frames come out as they went in however the bytes are cut", "[unit][transport]") {
  Bytes stream = encode_control_frame(ControlFrameType::kMessage, as_bytes("hello"));
  for (const auto& more :
       {encode_control_frame(ControlFrameType::kMessage, {}), encode_control_frame(ControlFrameType::kGoodbye, {})}) {
    stream.insert(stream.end(), more.begin(), more.end());
  }
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    ControlFrameReader reader(100);
    std::vector<Seen> seen;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      REQUIRE(feed(reader, ByteSpan(stream).subspan(at, std::min(piece, stream.size() - at)), seen).is_ok());
    }
    REQUIRE(seen.size() == 3);
    CHECK(seen[0].text == "hello");
    CHECK(seen[1].text.empty());
    CHECK(seen[2].type == ControlFrameType::kGoodbye);
  }
}

TEST_CASE("A control frame beyond the limit or of unknown type is an error at once", "[unit][transport]") {
  std::vector<Seen> seen;
  ControlFrameReader reader(10);
  CHECK(feed(reader, ByteSpan(encode_control_frame(ControlFrameType::kMessage, Bytes(11))).first(kControlHeaderSize),
             seen)
            .code() == StatusCode::kPrecondition);
  ControlFrameReader other(10);
  Bytes unknown = encode_control_frame(ControlFrameType::kMessage, {});
  unknown[0] = 3;
  put_header_check(std::span(unknown).first(kControlHeaderSize));
  CHECK_THAT(feed(other, unknown, seen).message(), Catch::Contains("unknown type 3"));
  CHECK(seen.empty());
}

TEST_CASE("A bit that flips in a control frame is an error as soon as the frame is there", "[unit][transport]") {
  const Bytes good = encode_control_frame(ControlFrameType::kMessage, as_bytes("which tensors are ready"));
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    ControlFrameReader reader(1U << 31U);
    std::vector<Seen> seen;
    CHECK_THAT(feed(reader, bad, seen).message(), Catch::Contains("has changed on the way"));
    CHECK(seen.empty());
  }
}
