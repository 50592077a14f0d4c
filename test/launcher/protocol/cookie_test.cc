#include "launcher/protocol/cookie.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("CookieScanner finds the hello line behind any noise, wherever the stream is cut",
          "[unit][launch_protocol]") {
  const std::string cookie = make_cookie();
  REQUIRE(is_cookie(cookie));
  const std::string stream = "Welcome!\nHVD-AGENT HVD-AGENT no newline" + hello_line(cookie) + "frames";
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    CookieScanner scanner(cookie);
    std::string rest;
    bool found = false;
    for (const std::string& part : {stream.substr(0, cut), stream.substr(cut)}) {
      if (found) {
        rest += part;
      } else if (const auto after = scanner.feed(as_bytes(part))) {
        found = true;
        rest += as_text(*after);
      }
    }
    REQUIRE(found);
    CHECK(rest == "frames");
  }
}

TEST_CASE("CookieScanner is not taken in by an echo of the command line", "[unit][launch_protocol]") {
  const std::string cookie = make_cookie();
  CookieScanner scanner(cookie);
  CHECK_FALSE(scanner.feed(as_bytes("+ exec horovodrun --agent " + cookie + "\n")).has_value());
}

TEST_CASE("CookieScanner gives up on a stream that is all noise", "[unit][launch_protocol]") {
  CookieScanner scanner(make_cookie());
  const std::string noise(64 * 1024, 'x');
  int chunks = 0;
  while (!scanner.given_up() && chunks < 100) {
    CHECK_FALSE(scanner.feed(as_bytes(noise)).has_value());
    ++chunks;
  }
  CHECK(chunks == 17);
}

TEST_CASE("Cookies differ", "[unit][launch_protocol]") { CHECK(make_cookie() != make_cookie()); }
