#include "runtime/base/internet_address.h"

#include <catch2/catch.hpp>

using namespace hvd;

TEST_CASE("A numeric address is read and written, with its port", "[unit][base]") {
  for (const char* text : {"10.0.0.1", "::1", "fd00::1", "::ffff:10.0.0.1", "fe80::1%lo"}) {
    INFO(text);
    const auto address = InternetAddress::parse(text, 65535);
    REQUIRE(address);
    CHECK(address->ip() == text);
    CHECK(address->port() == 65535);
    CHECK_FALSE(address->is_wildcard());
  }
  CHECK(InternetAddress::parse("0.0.0.0", 0).value().is_wildcard());
  CHECK(InternetAddress::parse("::", 0).value().is_wildcard());
}

TEST_CASE("What is no numeric address, or might mean another, is refused", "[unit][base]") {
  for (const char* text : {"", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "010.0.0.1", "10.0.0.256", " 10.0.0.1",
                           "10.0.0.1 ", "10.0.0.1:80", "[::1]", "::ffff:010.0.0.1", "fe80::1%no such"}) {
    INFO(text);
    CHECK_FALSE(InternetAddress::parse(text, 80));
  }
}
