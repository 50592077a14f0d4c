#include "runtime/base/letters.h"

#include <catch2/catch.hpp>

using namespace hvd;

TEST_CASE("Letters are those of UTF-8; other bytes are bytes", "[unit][base]") {
  const auto first = [](std::string_view text) {
    const Letter letter = letter_at(text, 0);
    CHECK(letter.is_stray_byte() == (letter.size == 1 && text[0] < 0));
    return std::pair(static_cast<unsigned>(letter.code), letter.size);
  };
  CHECK(first("a") == std::pair(0x61U, std::size_t{1}));
  CHECK(first("ü.") == std::pair(0xfcU, std::size_t{2}));
  CHECK(first("你") == std::pair(0x4f60U, std::size_t{3}));
  CHECK(first("\xf0\x9f\x98\x80") == std::pair(0x1f600U, std::size_t{4}));
  // Cut, beginning with a later byte, longer than need be, a surrogate, above all letters.
  for (const std::string_view text :
       {"\xc3", "\xe4\xbd", "\xbd", "\xc0\x9b", "\xe0\x82\x9b", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    CHECK(first(text) == std::pair(unsigned{static_cast<unsigned char>(text[0])}, std::size_t{1}));
  }
}

TEST_CASE("Controls are told from letters that have the same bytes", "[unit][base]") {
  CHECK(without_controls("a\x1b\n\t\x7f z") == "a???? z");
  CHECK(without_controls("a\x1b\n\t", "\n\t") == "a?\n\t");
  CHECK(without_controls("\xc2\x80\xc2\x9f\xc2\xa0") == "??\xc2\xa0");
  CHECK(without_controls("\x80\x9f\xa0\xff") == "??\xa0\xff");
  CHECK(without_controls("\xe0\x82\x9b") == "\xe0??");
  CHECK(without_controls("ü 你好 ě") == "ü 你好 ě");  // whose bytes end in 0x9b, for one
  CHECK_FALSE(has_controls("ü 你好 ě"));
  CHECK(has_controls("ü\xc2\x9b"));
  CHECK(has_controls("ü\x9b"));
}
