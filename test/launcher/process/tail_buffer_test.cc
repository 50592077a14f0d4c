#include "launcher/process/tail_buffer.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("TailBuffer keeps the last lines", "[unit][process]") {
  TailBuffer tail;
  CHECK(tail.last_lines(3).empty());
  tail.add(as_bytes("one\ntwo\r\n\nthr"));
  tail.add(as_bytes("ee"));
  CHECK(tail.last_lines(10) == std::vector<std::string>{"one", "two", "three"});
  CHECK(tail.last_lines(2) == std::vector<std::string>{"two", "three"});
}

TEST_CASE("TailBuffer forgets the beginning of a long stream, and a line that is cut by that", "[unit][process]") {
  TailBuffer tail;
  for (int i = 0; i < 10000; ++i) tail.add(as_bytes("line " + std::to_string(i) + "\n"));
  const auto lines = tail.last_lines(100000);
  CHECK(lines.back() == "line 9999");
  CHECK(lines.size() * 10 < TailBuffer::kMaxBytes + 10);
  CHECK(lines.front().starts_with("line 9"));
}

TEST_CASE("TailBuffer keeps what a long line begins with", "[unit][process]") {
  TailBuffer tail;
  const std::string message = "RuntimeError: " + std::string(3 * TailBuffer::kMaxBytes, 'x');
  const std::string kept = message.substr(0, TailBuffer::kMaxLine) + "...";
  SECTION("in one piece, or in several") {
    const std::size_t piece = GENERATE(as<std::size_t>(), 1, 1000, 4096, 100000);
    for (std::size_t at = 0; at < message.size(); at += piece) tail.add(as_bytes(message.substr(at, piece)));
    CHECK(tail.last_lines(3) == std::vector<std::string>{kept});
    tail.add(as_bytes("\n"));
    CHECK(tail.last_lines(3) == std::vector<std::string>{kept});
    tail.add(as_bytes("next\n"));
    CHECK(tail.last_lines(3) == std::vector<std::string>{kept, "next"});
  }
  SECTION("after other lines, and before empty ones") {
    tail.add(as_bytes(std::string(TailBuffer::kMaxBytes, 'y') + "\n" + message + "\n" +
                      std::string(TailBuffer::kMaxBytes, '\n')));
    CHECK(tail.last_lines(1) == std::vector<std::string>{kept});
  }
}

TEST_CASE("TailBuffer makes control characters harmless", "[unit][process]") {
  TailBuffer tail;
  tail.add(as_bytes("a\x1b[2Jb\tc"));
  CHECK(tail.last_lines(1) == std::vector<std::string>{"a?[2Jb\tc"});
  tail.add(
      as_bytes("\nfür 你好 \xc2\x9b"
               "2J\x9b"
               "2J\x7f"));
  CHECK(tail.last_lines(1) == std::vector<std::string>{"für 你好 ?2J?2J?"});
}
