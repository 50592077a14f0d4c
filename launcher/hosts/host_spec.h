#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

// One host of the job as the user named it.
struct HostSpec {
  std::string name;  // HOROVOD_HOSTNAME: the name exactly as listed (without user and port)
  std::string user;  // "" = whatever ssh decides
  int port = 0;      // 0 = --ssh-port, else whatever ssh decides
  int slots = 0;     // 1..4096
  // Hosts with the same one are parts of one machine, as tasks that a scheduler started there, and share its local
  // numbers; "": a machine by itself.
  std::string node = {};

  bool operator==(const HostSpec&) const = default;
};

// HOROVOD_HOSTNAME of its ranks: those of one machine have the same. For whatever has a name and a node, as a HostSpec.
template <typename Host = HostSpec>
const std::string& name_of_node(const Host& host) {
  return host.node.empty() ? host.name : host.node;
}

// Parts of one machine follow the first of them; else the order stays. Pure.
template <typename Host>
void put_nodes_together(std::vector<Host>& hosts) {
  std::map<std::string, std::size_t> order;  // of nodes, by their first host
  for (const Host& host : hosts) order.try_emplace(name_of_node(host), order.size());
  std::ranges::stable_sort(
      hosts, [&](const Host& a, const Host& b) { return order.at(name_of_node(a)) < order.at(name_of_node(b)); });
}

// Where one rank stands: in the job, among the ranks of its host, and among the hosts that have its local rank.
struct Placement {
  int rank = -1;
  int size = -1;
  int local_rank = -1;
  int local_size = -1;
  int cross_rank = -1;
  int cross_size = -1;

  bool operator==(const Placement&) const = default;
};

// The ranks that one agent starts.
struct HostAssignment {
  HostSpec host;
  std::vector<Placement> ranks;

  bool operator==(const HostAssignment&) const = default;
};

// What an elastic job leaves aside when a process has failed, if it can do without.
enum class SetsAside { kNothing, kSlots, kHosts };

}  // namespace hvd::launcher
