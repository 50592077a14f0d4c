
#include <catch2/catch.hpp>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

// Per host its ranks, each as rank.local_rank/local_size.cross_rank/cross_size.
std::string drawn(const std::vector<HostAssignment>& assignments) {
  std::string out;
  for (const HostAssignment& assignment : assignments) {
    out += (out.empty() ? "" : "; ") + assignment.host.name + ":";
    for (const Placement& slot : assignment.ranks) {
      out += " " + std::to_string(slot.rank) + "." + std::to_string(slot.local_rank) + "/" +
             std::to_string(slot.local_size) + "." + std::to_string(slot.cross_rank) + "/" +
             std::to_string(slot.cross_size);
    }
  }
  return out;
}

std::string placed(const char* hosts, int num_proc) {
  const auto assignments = allocate(parse_host_list(hosts).value(), num_proc);
  return assignments.is_ok() ? drawn(assignments.value()) : "error: " + assignments.status().message();
}

}  // namespace

TEST_CASE("Ranks fill the hosts in the order listed", "[unit][hosts]") {
  REQUIRE(placed("a:1", 1) == "a: 0.0/1.0/1");
  REQUIRE(placed("a:2", 2) == "a: 0.0/2.0/1 1.1/2.0/1");
  REQUIRE(placed("a:2,b:2", 4) == "a: 0.0/2.0/2 1.1/2.0/2; b: 2.0/2.1/2 3.1/2.1/2");
  REQUIRE(placed("b:1,a:1", 2) == "b: 0.0/1.0/2; a: 1.0/1.1/2");
}

TEST_CASE("Cross numbers count only hosts with the same local rank", "[unit][hosts][compat]") {
  // Hosts of 2 and 1.
  REQUIRE(placed("a:2,b:1", 3) == "a: 0.0/2.0/2 1.1/2.0/1; b: 2.0/1.1/2");
  REQUIRE(placed("a:1,b:3,c:2", 6) == "a: 0.0/1.0/3; b: 1.0/3.1/3 2.1/3.0/2 3.2/3.0/1; c: 4.0/2.2/3 5.1/2.1/2");
}

TEST_CASE("The number of processes caps the slots", "[unit][hosts]") {
  REQUIRE(placed("a:4,b:4", 1) == "a: 0.0/1.0/1");
  REQUIRE(placed("a:2,b:4,c:4", 3) == "a: 0.0/2.0/2 1.1/2.0/1; b: 2.0/1.1/2");
}

TEST_CASE("Every rank carries the size of the job", "[unit][hosts]") {
  const auto assignments = allocate(parse_host_list("a:2,b:4").value(), 5).value();
  for (const HostAssignment& assignment : assignments) {
    for (const Placement& slot : assignment.ranks) REQUIRE(slot.size == 5);
  }
  REQUIRE(assignments.at(1).host.slots == 4);
}

TEST_CASE("Too few slots is an error with both numbers and the hosts", "[unit][hosts]") {
  REQUIRE(placed("a:2,u@b:1", 4) ==
          "error: the job needs 4 slots but the hosts have 3 (name:N gives a host N of them): a:2,u@b:1");
  REQUIRE(placed("a:2", 0) == "error: the number of processes must be at least 1, not 0");
  REQUIRE(allocate({}, 1).status().message() ==
          "the job needs 1 slot but the hosts have 0 (name:N gives a host N of them): ");
}

TEST_CASE("A long host list is cut in the error", "[unit][hosts]") {
  std::vector<HostSpec> hosts(1000);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = "host" + std::to_string(i);
    hosts[i].slots = 1;
  }
  const std::string message = allocate(hosts, 1001).status().message();
  REQUIRE(message.size() < 300);
  REQUIRE(message.ends_with("..."));
}

TEST_CASE("get_host_assignments takes all slots up to its maximum", "[unit][hosts][compat]") {
  const auto hosts = parse_host_list("a:2,b:2").value();
  REQUIRE(drawn(get_host_assignments(hosts, 1, std::nullopt).value()) == placed("a:2,b:2", 4));
  REQUIRE(drawn(get_host_assignments(hosts, 1, 3).value()) == placed("a:2,b:2", 3));
  REQUIRE(drawn(get_host_assignments(hosts, 4, 9).value()) == placed("a:2,b:2", 4));
  REQUIRE_FALSE(get_host_assignments(hosts, 5, std::nullopt).is_ok());
  REQUIRE_FALSE(get_host_assignments(hosts, 3, 2).is_ok());
}

TEST_CASE("The number of ranks is bounded", "[unit][hosts]") {
  std::vector<HostSpec> hosts(257);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = "h" + std::to_string(i);
    hosts[i].slots = kMaxSlotsPerHost;
  }
  REQUIRE(get_host_assignments(hosts, 1, std::nullopt).status().message().find("limit of 1048576") !=
          std::string::npos);
}

TEST_CASE("Hosts that are parts of one machine share its local numbers", "[unit][hosts]") {
  const auto numbered = [](const char* hosts, const std::vector<std::string>& nodes, int ranks) {
    std::vector<HostSpec> list = parse_host_list(hosts).value();
    for (std::size_t i = 0; i < nodes.size(); ++i) list[i].node = nodes[i];
    return drawn(allocate(list, ranks).value());
  };
  REQUIRE(numbered("a:1,b:1,c:1", {"x", "x", "y"}, 3) == "a: 0.0/2.0/2; b: 1.1/2.0/1; c: 2.0/1.1/2");
  REQUIRE(numbered("a:2,b:1,c:1", {"x", "x", ""}, 4) == "a: 0.0/3.0/2 1.1/3.0/1; b: 2.2/3.0/1; c: 3.0/1.1/2");
  REQUIRE(numbered("a:1,b:1", {"", ""}, 2) == placed("a:1,b:1", 2));
  CHECK(name_of_node({.name = "a", .user = {}}) == "a");
  CHECK(name_of_node({.name = "a", .user = {}, .node = "x"}) == "x");
}

TEST_CASE("hosts that have joined share the ranks", "[unit][hosts]") {
  const auto text = [](const std::vector<std::string>& names, int ranks) {
    return host_list_text(share_ranks(names, ranks));
  };
  CHECK(text({"a", "b"}, 4) == "a:2,b:2");
  CHECK(text({"a", "b", "c"}, 8) == "a:3,b:3,c:2");
  CHECK(text({"a", "b"}, 2) == "a:1,b:1");
}

}  // namespace hvd::launcher
