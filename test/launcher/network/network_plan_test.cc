#include "launcher/network/network_plan.h"

#include <catch2/catch.hpp>

using namespace hvd::launcher;

namespace {

using Texts = std::vector<std::string>;

// lo, a training network 10.0.0.0/24 and a management network 10.1.0.0/24 with the default route.
NetworkView machine() {
  return {
      .own = {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.1", true}, {"mgmt", "10.1.0.1", true}, {"lo", "::1", false}},
      .source_towards = [](const std::string& address) -> std::string {
        if (address.starts_with("127.")) return "127.0.0.1";
        if (address.starts_with("10.0.0.")) return "10.0.0.1";
        if (address.starts_with("10.9.")) return "";  // no route
        return "10.1.0.1";
      }};
}

NetworkPlan plan(const std::vector<Texts>& resolved, const Texts& nics = {}) {
  std::vector<ResolvedHost> hosts;
  for (const Texts& addresses : resolved) hosts.push_back({.addresses = addresses, .by_ssh = false});
  auto result = plan_network(hosts, nics, machine());
  REQUIRE(result.is_ok());
  return std::move(result).value();
}

}  // namespace

TEST_CASE("A job on this machine alone listens on loopback alone", "[unit][job]") {
  const NetworkPlan p = plan({{"127.0.0.1"}, {"10.0.0.1"}, {"127.0.1.1"}});
  CHECK(p.listen_addresses == Texts{"127.0.0.1"});
  for (const PlannedAgent& agent : p.agents) {
    CHECK(agent.local);
    CHECK(agent.rendezvous_addresses == Texts{"127.0.0.1"});
  }
}

TEST_CASE("A job with remote hosts listens on the address of the route to each of them", "[unit][job]") {
  const NetworkPlan p = plan({{"127.0.0.1"}, {"10.0.0.2"}, {"10.0.0.3"}});
  CHECK(p.listen_addresses == Texts{"10.0.0.1"});
  CHECK(p.agents[0].local);
  CHECK_FALSE(p.agents[1].local);
  CHECK(p.agents[0].rendezvous_addresses == Texts{"10.0.0.1"});
  CHECK(p.agents[1].rendezvous_addresses == Texts{"10.0.0.1"});
}

TEST_CASE("Hosts behind different networks get the address of their own route first", "[unit][job]") {
  const NetworkPlan p = plan({{"10.0.0.2"}, {"10.1.0.7"}});
  CHECK(p.listen_addresses == Texts{"10.0.0.1", "10.1.0.1"});
  CHECK(p.agents[0].rendezvous_addresses == Texts{"10.0.0.1", "10.1.0.1"});
  CHECK(p.agents[1].rendezvous_addresses == Texts{"10.1.0.1", "10.0.0.1"});
}

TEST_CASE("A name that only ssh knows is remote, and gets the address of the default route", "[unit][job]") {
  const NetworkPlan p = plan({{}});
  CHECK_FALSE(p.agents[0].local);
  CHECK(p.listen_addresses == Texts{"10.1.0.1"});
}

TEST_CASE("An alias of ssh is remote, also when it leads to a port of this machine", "[unit][job]") {
  const auto result = plan_network({{.addresses = {"127.0.0.1"}, .by_ssh = true}}, {}, machine());
  REQUIRE(result.is_ok());
  CHECK_FALSE(result.value().agents[0].local);
  CHECK(result.value().listen_addresses == Texts{"127.0.0.1", "10.1.0.1"});
  CHECK(result.value().agents[0].rendezvous_addresses == Texts{"127.0.0.1", "10.1.0.1"});
}

TEST_CASE("A host whose first address has no route is met over its second", "[unit][job]") {
  CHECK(plan({{"10.9.0.1", "10.0.0.2"}}).listen_addresses == Texts{"10.0.0.1"});
}

TEST_CASE("Chosen interfaces are the only ones listened on", "[unit][job]") {
  CHECK(plan({{"127.0.0.1"}}, {"lo"}).listen_addresses == Texts{"127.0.0.1"});
  const NetworkPlan p = plan({{"10.0.0.2"}}, {"mgmt"});
  CHECK(p.listen_addresses == Texts{"10.1.0.1"});
  CHECK(p.agents[0].rendezvous_addresses == Texts{"10.1.0.1"});
}

TEST_CASE("Of the chosen interfaces those of other hosts are passed over", "[unit][job]") {
  CHECK(plan({{"10.0.0.2"}}, {"ib7", "eth0", "en3"}).listen_addresses == Texts{"10.0.0.1"});
  const auto result = plan_network({{.addresses = {"10.0.0.2"}, .by_ssh = false}}, {"ib7", "en3"}, machine());
  REQUIRE_FALSE(result.is_ok());
  CHECK(result.status().message() ==
        "--network-interfaces: this machine has no interface 'ib7' or 'en3' with an address; it has lo, eth0, mgmt");
}

TEST_CASE("An interface that this machine does not have is an error that names those it has", "[unit][job]") {
  const auto result = plan_network({{.addresses = {"127.0.0.1"}, .by_ssh = false}}, {"eth7"}, machine());
  REQUIRE_FALSE(result.is_ok());
  CHECK(result.status().message() ==
        "--network-interfaces: this machine has no interface 'eth7' with an address; it has lo, eth0, mgmt");
}
