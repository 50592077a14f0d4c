#include "launcher/hosts/host_list.h"

#include <catch2/catch.hpp>

namespace hvd::launcher {

namespace {

HostSpec host(std::string name, int slots, std::string user = "", int port = 0) {
  HostSpec spec;
  spec.name = std::move(name);
  spec.slots = slots;
  spec.user = std::move(user);
  spec.port = port;
  return spec;
}

std::string error_of(std::string_view text) {
  const auto hosts = parse_host_list(text);
  INFO(text);
  REQUIRE_FALSE(hosts.is_ok());
  REQUIRE(hosts.status().code() == StatusCode::kInvalidArgument);
  return hosts.status().message();
}

}  // namespace

TEST_CASE("A host list gives every host its name, user, port and slots", "[unit][hosts]") {
  REQUIRE(parse_host_list("a:2").value() == std::vector<HostSpec>{host("a", 2)});
  REQUIRE(parse_host_list("a:2, b-1.example.org:16 ,10.0.0.1:1").value() ==
          std::vector<HostSpec>{host("a", 2), host("b-1.example.org", 16), host("10.0.0.1", 1)});
  REQUIRE(parse_host_list("me@a:2222:4").value() == std::vector<HostSpec>{host("a", 4, "me", 2222)});
  REQUIRE(parse_host_list("[::1]:2,u@[fe80::1]:22:3").value() ==
          std::vector<HostSpec>{host("::1", 2), host("fe80::1", 3, "u", 22)});
  REQUIRE(parse_host_list("my_node:1,_a_:2,b.example.org.:3").value() ==
          std::vector<HostSpec>{host("my_node", 1), host("_a_", 2), host("b.example.org.", 3)});
}

TEST_CASE("A host without slots has one, and a host that is named again adds up", "[unit][hosts]") {
  REQUIRE(parse_host_list("a,u@b,[::1]").value() ==
          std::vector<HostSpec>{host("a", 1), host("b", 1, "u"), host("::1", 1)});
  REQUIRE(parse_host_list("a,b:2,a,a:3").value() == std::vector<HostSpec>{host("a", 5), host("b", 2)});
  REQUIRE(parse_host_list("u@a:22:1,u@a:22:2").value() == std::vector<HostSpec>{host("a", 3, "u", 22)});
}

TEST_CASE("host_list_text is read back as the same hosts", "[unit][hosts]") {
  const std::vector<HostSpec> hosts{host("a", 2), host("::1", 4096, "u.v", 65535), host("10.0.0.1", 1, "", 22)};
  REQUIRE(host_list_text(hosts) == "a:2,u.v@[::1]:65535:4096,10.0.0.1:22:1");
  REQUIRE(parse_host_list(host_list_text(hosts)).value() == hosts);
}

TEST_CASE("A malformed host list is an error that names the entry", "[unit][hosts]") {
  REQUIRE(error_of("a:2,b:x") == "host list, entry 2 'b:x': 'x' is not a number of slots from 1 to 4096");
  REQUIRE(error_of("").find("entry 1 ''") != std::string::npos);
  REQUIRE(error_of("a:2,,b:1").find("entry 2 ''") != std::string::npos);
  REQUIRE(error_of("a:2,").find("entry 2 ''") != std::string::npos);
  REQUIRE(
      error_of("a:1,b:1,u@a:3") ==
      "host list, entry 3 'u@a:3': host 'a' was named before with another user or port; name it with the same ones");
  REQUIRE(error_of("a:4096,b,a").ends_with("host 'a' has 4097 slots with its earlier mentions; the limit is 4096"));
  for (const std::string bare : {"::1", "fe80::1:2", "2001:db8:0:0:0:0:0:5"}) {
    REQUIRE(
        error_of(bare).ends_with("'" + bare + "' has no brackets around its IPv6 address, expected as in '[::1]:2'"));
  }
  for (const char* bad : {"a:0",     "a:4097",       "a:-1",     "a:+1",      "a: 1",         "a:",         ":2",
                          "a:1:2:3", "a::2",         "a:0:2",    "a:65536:2", "10.0.0.256:1", "1.2.3:1",    "[::1:2",
                          "[::g]:1", "[10.0.0.1]:1", "[::1]x:1", "@a:1",      "a@b@c:1",      ".:1",        ".a:1",
                          "a..b:1",  "-a:1",         "a-:1",     "a..:1",     "b.-a:1",       "10.0.0.1.:1"}) {
    error_of(bad);
  }
}

TEST_CASE("Nothing that ssh or a shell would take for something else is a host", "[unit][hosts][security]") {
  for (const char* bad :
       {"-oProxyCommand=reboot:1", "a;reboot:1", "$(reboot):1", "`reboot`:1", "a b:1", "a\nb:1", "a|b:1", "a&b:1",
        "a/b:1", "a\\b:1", "'a':1", "-l@a:1", "u;x@a:1", "a\x7f:1", "\xc3\xa4:1", "*:1", "%h:1"}) {
    error_of(bad);
  }
  error_of(std::string_view("a\0b:1", 5));
  error_of(std::string_view("[::1\0]:1", 8));
  error_of(std::string(64, 'a') + ":1");
  error_of(std::string(65, 'u') + "@a:1");
}

TEST_CASE("Host lists are bounded", "[unit][hosts]") {
  std::string many;
  for (std::size_t i = 0; i < kMaxHosts; ++i) many += "h" + std::to_string(i) + ":1,";
  many.pop_back();
  REQUIRE(parse_host_list(many).value().size() == kMaxHosts);
  REQUIRE(error_of(many + ",last:1").find("more than 65536 hosts") != std::string::npos);
  REQUIRE(error_of(std::string(kMaxHostTextBytes + 1, 'a')) == "the host list is longer than 4 MiB");
}

TEST_CASE("The longest legal names are accepted", "[unit][hosts]") {
  const std::string label(63, 'a');
  const std::string name = label + "." + label + "." + label + "." + std::string(61, 'b');
  REQUIRE(name.size() == 253);
  REQUIRE(parse_host_list(name + ":1").value().at(0).name == name);
  error_of(name + "b:1");
}

}  // namespace hvd::launcher
