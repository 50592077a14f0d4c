#include "runtime/config/parse_value.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include <limits>

namespace hvd::config {

namespace {
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("parse_integer reads whole integers inside the range only", "[unit][config]") {
  REQUIRE(parse_integer("0", 0, 10).value() == 0);
  REQUIRE(parse_integer(" 10\t", 0, 10).value() == 10);
  REQUIRE(parse_integer("+7", 0, 10).value() == 7);
  REQUIRE(parse_integer("-3", -5, 10).value() == -3);
  for (const char* bad :
       {"", " ", "x", "1x", "1 2", "0x10", "1.5", "1e3", "+", "-", "++1", "+-1", "11", "-1", "9223372036854775808"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_integer(bad, 0, 10).is_ok());
  }
  REQUIRE(parse_integer("12", 0, 10).status().message() == "'12' is not an integer from 0 to 10");
  REQUIRE(parse_integer("x", 1, kMax).status().message() == "'x' is not an integer >= 1");
}

TEST_CASE("parse_real reads finite numbers inside the range only", "[unit][config]") {
  REQUIRE(parse_real("0.5", 0, 1).value() == 0.5);
  REQUIRE(parse_real("1e-3", 0, 1).value() == 1e-3);
  REQUIRE(parse_real("20", 0, 100).value() == 20);
  for (const char* bad : {"", "nan", "inf", "-inf", "1,5", "0.5ms", "1.1", "-0.1", "1e999"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_real(bad, 0, 1).is_ok());
  }
  REQUIRE(parse_real("2", 0, 1).status().message() == "'2' is not a number from 0 to 1");
}

TEST_CASE("parse_bytes reads plain counts and suffixes of powers of 1024", "[unit][config]") {
  REQUIRE(parse_bytes("67108864", 0, kMax).value() == 67'108'864);
  REQUIRE(parse_bytes("0", 0, kMax).value() == 0);
  for (const char* text : {"64MB", "64mb", "64 MB", "64M", "64MiB", "65536K", "65536KiB", "67108864B"}) {
    INFO(text);
    REQUIRE(parse_bytes(text, 0, kMax).value() == 67'108'864);
  }
  REQUIRE(parse_bytes("2GiB", 0, kMax).value() == 2LL << 30);
  for (const char* bad : {"", "MB", "64 bananas", "64MBB", "6.4MB", "-1", "-9223372036854775808",
                          "9223372036854775807K", "64M 2", "1T"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_bytes(bad, 0, kMax).is_ok());
  }
  REQUIRE(parse_bytes("64 bananas", 0, kMax).status().message() ==
          "'64 bananas' is not a number of bytes >= 0 (as 67108864 or 64MB)");
}

TEST_CASE("parse_bool takes positive integers as true, and words", "[unit][config]") {
  for (const char* text : {"1", "2", " 1", "true", "TRUE", "yes", "On"}) {
    INFO(text);
    REQUIRE(parse_bool(text).value());
  }
  for (const char* text : {"0", "-1", "false", "No", "off"}) {
    INFO(text);
    REQUIRE_FALSE(parse_bool(text).value());
  }
  REQUIRE(parse_bool("maybe").status().message() == "'maybe' is not a truth value (1, 0, true or false)");
  REQUIRE_FALSE(parse_bool("").is_ok());
}

TEST_CASE("parse_choice returns the place of the word in any case", "[unit][config]") {
  REQUIRE(parse_choice("a", "a|b|c").value() == 0);
  REQUIRE(parse_choice("C", "a|b|c").value() == 2);
  REQUIRE(parse_choice("d", "a|b|c").status().message() == "'d' is not one of: a, b, c");
  REQUIRE_FALSE(parse_choice("a|b", "a|b|c").is_ok());
  REQUIRE_FALSE(parse_choice("", "a|b|c").is_ok());
}

TEST_CASE("parse_ports reads a range or one port", "[unit][config]") {
  REQUIRE(parse_ports("40000-40099").value() == PortRange{40000, 40099});
  REQUIRE(parse_ports(" 7 ").value() == PortRange{7, 7});
  REQUIRE(PortRange{7, 9}.to_string() == "7-9");
  auto all = PortRange{65533, 65535}.candidates(1);
  std::ranges::sort(all);
  REQUIRE(all == std::vector<std::uint16_t>{65533, 65534, 65535});
  REQUIRE(PortRange{}.candidates(2) == std::vector<std::uint16_t>{0, 0});
  for (const char* bad : {"", "-", "0", "1-", "-1", "9-8", "1-65536", "1-2-3", "a"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_ports(bad).is_ok());
  }
}

TEST_CASE("parse_cores reads a comma list of core numbers", "[unit][config]") {
  REQUIRE(parse_cores("3").value() == std::vector<int>{3});
  REQUIRE(parse_cores("0, 2,4095").value() == std::vector<int>{0, 2, 4095});
  for (const char* bad : {"", ",", "1,", "1,,2", "a", "-1", "4096", "1-3"}) {
    INFO(bad);
    REQUIRE_FALSE(parse_cores(bad).is_ok());
  }
}

TEST_CASE("quoted escapes control bytes and cuts long text", "[unit][config]") {
  REQUIRE(quoted("a b") == "'a b'");
  REQUIRE(quoted(std::string_view("a\n\0\x7f", 4)) == "'a\\x0a\\x00\\x7f'");
  // Those of ISO 6429, as a letter and as a byte; but no other letters of the same bytes.
  REQUIRE(quoted("\xc2\x9b"
                 "2J\x9b"
                 "2J") == "'\\xc2\\x9b2J\\x9b2J'");
  REQUIRE(quoted("für 你好") == "'für 你好'");
  REQUIRE(quoted(std::string(79, 'x') + "ü") == "'" + std::string(79, 'x') + "...'");
  REQUIRE(quoted(std::string(81, 'x')) == "'" + std::string(80, 'x') + "...'");
}

}  // namespace hvd::config
