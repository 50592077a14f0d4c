#include "launcher/plan/prefix_template.h"

#include <catch2/catch.hpp>

namespace hvd::launcher {

namespace {

std::string expanded(std::string_view text) {
  const auto parsed = PrefixTemplate::parse(text);
  if (!parsed.is_ok()) return "error: " + parsed.status().message();
  return parsed.value().expand({.rank = 12, .local_rank = 3, .host = "n07", .stream = "stderr", .time = "now"});
}

}  // namespace

TEST_CASE("A template has its fields replaced, and doubled braces are braces", "[unit][plan]") {
  CHECK(expanded("{rank}@{host} ") == "12@n07 ");
  CHECK(expanded("{time}|{local_rank}<{stream}>") == "now|3<stderr>");
  CHECK(expanded("{{rank}} {{{rank}}} }}{{") == "{rank} {12} }{");
  CHECK(expanded("no field: ") == "no field: ");
  CHECK(PrefixTemplate::parse("{time}{rank}").value().has_time());
  CHECK_FALSE(PrefixTemplate::parse("{{time}}{rank}time").value().has_time());
}

TEST_CASE("A template that cannot be is refused with what is wrong", "[unit][plan]") {
  CHECK(expanded("{size}") ==
        "error: '{size}' is no field: expected one of {rank}, {local_rank}, {host}, {stream}, {time}; {{ is a brace "
        "itself");
  CHECK(expanded("{}").starts_with("error: '{}' is no field"));
  CHECK(expanded("{Rank}").starts_with("error: '{Rank}' is no field"));
  CHECK(expanded("{rank") == "error: '{rank' has a { without its }; {{ is a brace itself");
  CHECK(expanded("rank}") == "error: 'rank}' has a } without its {; }} is a brace itself");
  CHECK(expanded("a\n").ends_with("expected at most 256 bytes, and no control characters"));
  CHECK(expanded("\033[1m").ends_with("no control characters"));
  CHECK(expanded("a\xc2\x9b"
                 "1m")
            .ends_with("no control characters"));
  CHECK(expanded("\xc3\x9c, \xc2\xb5, \xe2\x80\x9c") == "\xc3\x9c, \xc2\xb5, \xe2\x80\x9c");
  CHECK(expanded(std::string(257, 'a')).ends_with("no control characters"));
  CHECK(expanded(std::string(256, 'a')) == std::string(256, 'a'));
  CHECK(expanded("rangé {rank}") == "rangé 12");
}

}  // namespace hvd::launcher
