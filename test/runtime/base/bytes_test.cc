#include "runtime/base/bytes.h"

#include <catch2/catch.hpp>

using namespace hvd;

TEST_CASE("ByteReader returns what ByteWriter wrote", "[unit][base]") {
  ByteWriter writer;
  writer.put<std::uint8_t>(7);
  writer.put<std::int64_t>(-5);
  writer.put<double>(0.25);
  writer.put_string("gradient/conv1");
  ByteReader reader(writer.bytes());
  CHECK(reader.get<std::uint8_t>() == 7);
  CHECK(reader.get<std::int64_t>() == -5);
  CHECK(reader.get<double>() == 0.25);
  CHECK(reader.get_string(64) == "gradient/conv1");
  CHECK(reader.finish("message").is_ok());
}

TEST_CASE("ByteReader keeps its first error and returns zeros after it", "[unit][base]") {
  const Bytes two = {1, 2};
  ByteReader reader(two);
  CHECK(reader.get<std::uint32_t>() == 0);
  CHECK(reader.get<std::uint8_t>() == 0);
  CHECK(reader.finish("hello").message() == "hello: truncated: 4 bytes wanted at offset 0, 2 left");
}

TEST_CASE("ByteReader refuses lengths and counts over their limits", "[unit][base]") {
  ByteWriter writer;
  writer.put<std::uint32_t>(1000);
  SECTION("a string") {
    ByteReader reader(writer.bytes());
    CHECK(reader.get_string(999).empty());
    CHECK(reader.finish("x").message() == "x: length 1000 over the limit of 999");
  }
  SECTION("a count that the message cannot hold") {
    ByteReader reader(writer.bytes());
    CHECK(reader.get_count(5000, 8) == 0);
    CHECK(reader.failed());
  }
}

TEST_CASE("ByteReader reports bytes left over", "[unit][base]") {
  const Bytes three = {1, 2, 3};
  ByteReader reader(three);
  reader.get<std::uint8_t>();
  CHECK(reader.finish("frame").message() == "frame: 2 bytes left over");
}

TEST_CASE("Hex round-trips and refuses other text", "[unit][base]") {
  const Bytes raw = {0x00, 0xff, 0x5a};
  CHECK(to_hex(raw) == "00ff5a");
  CHECK(from_hex("00FF5a").value() == raw);
  CHECK_FALSE(from_hex("0").is_ok());
  CHECK_FALSE(from_hex("0g").is_ok());
}
