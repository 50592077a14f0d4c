#include "launcher/elastic/discovery.h"

#include <catch2/catch.hpp>
#include <string>

#include "launcher/elastic/ranking.h"
#include "launcher/hosts/host_list.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("What a discovery script prints is a host in each line", "[unit][elastic]") {
  CHECK(host_list_text(parse_discovered_hosts("a:2\n\n  b \r\nu@c:2222:4\na:1", 3).value()) == "a:3,b:3,u@c:2222:4");
  CHECK(parse_discovered_hosts("", 1).value().empty());
  CHECK(parse_discovered_hosts("\n \n", 1).value().empty());
  CHECK(host_list_text(parse_discovered_hosts("a:2\nb:0\nu@c:22:0\n", 1).value()) == "a:2");
  CHECK_THAT(parse_discovered_hosts("a:2\nb!:0\n", 1).status().message(), Catch::Contains("its line 2 'b!:0'"));
  CHECK_THAT(parse_discovered_hosts("-oProxyCommand=x", 1).status().message(), Catch::Contains("its line 1"));
  CHECK_THAT(parse_discovered_hosts(std::string(kMaxDiscoveryBytes + 1, '\n'), 1).status().message(),
             Catch::Contains("more than 1 MiB"));
}

TEST_CASE("A watched hostfile counts once it stays as it is", "[unit][elastic]") {
  HostfileWatch watch;
  const auto read = [&watch](const std::string& text) -> std::string {
    const auto hosts = watch.read(text, "f");
    if (!hosts.is_ok()) return hosts.status().message();
    return hosts.value() ? host_list_text(*hosts.value()) : "";
  };
  CHECK(read("a slots=2") == "a:2");
  CHECK(read("a slots=1") == "");
  CHECK(read("a slots=1") == "f: its last line has no end: expected a newline there");
  CHECK(read("a slots=16\n") == "");
  CHECK(read("a slots=16\nb\n") == "");
  CHECK(read("a slots=16\nb\n") == "a:16,b:1");
  CHECK(read("a slots=oops\n") == "");
  CHECK(read("a slots=oops\n") == "f:1: 'oops' is not a number of slots from 1 to 4096");
  CHECK(read("") == "");
  CHECK(read("") == "f: no host in it");
}

TEST_CASE("Rank 0 is the leader, and as few others as possible move for it", "[unit][elastic]") {
  const std::vector<HostSlots> hosts = {{"a", {0, 1, 5}}, {"b", {2, 3}}};
  const auto text = [&](int leader) {
    std::string ranks;
    for (const auto& [slot, one] : rank_slots(hosts, leader)) {
      ranks += std::to_string(slot) + ":" + std::to_string(one.rank) + "/" + std::to_string(one.size) + " " +
               std::to_string(one.local_rank) + "/" + std::to_string(one.local_size) + " " +
               std::to_string(one.cross_rank) + "/" + std::to_string(one.cross_size) + "  ";
    }
    return ranks;
  };
  CHECK(text(0) == "0:0/5 0/3 0/2  1:1/5 1/3 0/2  2:3/5 0/2 1/2  3:4/5 1/2 1/2  5:2/5 2/3 0/1  ");
  CHECK(text(5) == "0:2/5 0/3 0/2  1:1/5 1/3 0/2  2:3/5 0/2 1/2  3:4/5 1/2 1/2  5:0/5 2/3 0/1  ");
  CHECK(text(3) == "0:2/5 0/3 1/2  1:3/5 1/3 1/2  2:1/5 0/2 0/2  3:0/5 1/2 0/2  5:4/5 2/3 0/1  ");
}

TEST_CASE("Hosts that are parts of one machine share its local ranks", "[unit][elastic]") {
  const std::vector<HostSlots> hosts = {{"b", {3}}, {"task-0", {0}, "a"}, {"task-2", {1, 2}, "a"}};
  const auto ranks = rank_slots(hosts, 2);
  CHECK(ranks.at(2) == Placement{0, 4, 2, 3, 0, 1});
  CHECK(ranks.at(0) == Placement{2, 4, 0, 3, 0, 2});
  CHECK(ranks.at(1) == Placement{1, 4, 1, 3, 0, 1});
  CHECK(ranks.at(3) == Placement{3, 4, 0, 1, 1, 2});
}
