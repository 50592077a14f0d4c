#include "runtime/transport/net/route.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::transport;

namespace {

SocketAddress ip(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return SocketAddress::from_ip(Bytes{a, b, c, d}, 1000).value();
}

std::vector<std::string> interfaces(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> names;
  for (const auto& endpoint : endpoints) names.push_back(endpoint.interface);
  return names;
}

const HostIdentity kHere{"a", "boot-a", "net:[1]", "pid:[1]"};
const HostIdentity kThere{"b", "boot-b", "net:[1]", "pid:[1]"};

}  // namespace

TEST_CASE("On a shared network loopback is tried first and every address counts", "[unit][transport]") {
  const AddressRow peer{kHere, {{ip(10, 0, 0, 1), "eth0"}, {ip(127, 0, 0, 1), "lo"}}};
  const std::vector<InterfaceAddress> own = {{"eth0", ip(10, 0, 0, 1), 24}};
  const auto order = order_candidates(peer, kHere, own, [](const auto&) { return true; });
  CHECK(interfaces(order) == std::vector<std::string>{"lo", "eth0"});
}

TEST_CASE("Between hosts loopback, link-local and our own addresses are left out", "[unit][transport]") {
  const AddressRow peer{kThere,
                        {{ip(127, 0, 0, 1), "lo"},
                         {ip(169, 254, 3, 4), "zero"},
                         {ip(172, 17, 0, 1), "docker0"},
                         {ip(10, 0, 0, 2), "eth0"}}};
  const std::vector<InterfaceAddress> own = {{"docker0", ip(172, 17, 0, 1), 16}, {"eth0", ip(10, 0, 0, 1), 24}};
  const auto order = order_candidates(peer, kHere, own, [](const auto&) { return true; });
  CHECK(interfaces(order) == std::vector<std::string>{"eth0"});
}

TEST_CASE("Between hosts a common network beats a route and a route beats none", "[unit][transport]") {
  const AddressRow peer{kThere,
                        {{ip(192, 168, 9, 2), "none"}, {ip(10, 8, 0, 2), "routed"}, {ip(10, 0, 0, 2), "common"}}};
  const std::vector<InterfaceAddress> own = {{"eth0", ip(10, 0, 0, 1), 24}};
  const auto order =
      order_candidates(peer, kHere, own, [](const SocketAddress& address) { return address.ip()[0] == 10; });
  CHECK(interfaces(order) == std::vector<std::string>{"common", "routed", "none"});
}

TEST_CASE("A rank listens on the interface of its route and on loopback", "[unit][transport]") {
  const std::vector<InterfaceAddress> own = {{"lo", ip(127, 0, 0, 1), 8},
                                             {"docker0", ip(172, 17, 0, 1), 16},
                                             {"eth0", ip(10, 0, 0, 1), 24},
                                             {"eth0", ip(10, 0, 1, 1), 24}};
  const auto chosen = addresses_on_route(own, ip(10, 0, 1, 1));
  CHECK(chosen.size() == 3);
  CHECK(std::ranges::none_of(chosen, [](const auto& mine) { return mine.interface == "docker0"; }));
  CHECK(addresses_on_route(own, ip(10, 9, 9, 9)).size() == own.size());
}

TEST_CASE("The kernel says which address packets to loopback carry", "[unit][transport]") {
  CHECK(source_towards(SocketAddress::loopback(9)).value().is_loopback());
}

TEST_CASE("A numeric address is read in both families and nothing else is", "[unit][transport]") {
  CHECK(SocketAddress::from_text("10.0.0.1", 1000).value() == ip(10, 0, 0, 1));
  CHECK(SocketAddress::from_text("fd00::1", 80).value().to_string() == "[fd00::1]:80");
  for (const char* text : {"", "localhost", "10.0.0", "10.0.0.1 ", "::g"}) {
    CHECK_FALSE(SocketAddress::from_text(text, 1).is_ok());
  }
}

TEST_CASE("An interface contains the addresses of its prefix", "[unit][transport]") {
  const InterfaceAddress net{"eth0", ip(10, 0, 16, 1), 20};
  CHECK(net.contains(ip(10, 0, 31, 255)));
  CHECK_FALSE(net.contains(ip(10, 0, 32, 0)));
  CHECK_FALSE(net.contains(SocketAddress::from_ip(Bytes(16, 10), 1).value()));
}

TEST_CASE("The kernel has a route to loopback", "[unit][transport]") {
  CHECK(route_exists(SocketAddress::loopback(1)));
}
