
#include <algorithm>
#include <cstdint>
#include <string>

#include "launcher/hosts/host_list.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t kMaxListed = 200;  // letters of the host list in a message

Status too_few_slots(const std::vector<HostSpec>& hosts, int needed, std::int64_t slots) {
  std::string list = host_list_text(hosts);
  if (list.size() > kMaxListed) list = list.substr(0, kMaxListed) + "...";
  return Status::invalid_argument("the job needs " + count_text(needed, "slot") + " but the hosts have " +
                                  std::to_string(slots) + " (name:N gives a host N of them): " + list);
}

// The ranks of one machine: all of a host, or of neighbours that are parts of one.
using Neighbours = std::vector<Placement*>;

std::vector<Neighbours> by_node(std::vector<HostAssignment>& assignments) {
  std::vector<Neighbours> nodes;
  const std::string* node = nullptr;
  for (HostAssignment& assignment : assignments) {
    const std::string& own = assignment.host.node;
    if (node == nullptr || own.empty() || own != *node) nodes.emplace_back();
    node = &own;
    for (Placement& placement : assignment.ranks) nodes.back().push_back(&placement);
  }
  return nodes;
}

// Fills in local and cross numbers of hosts that already know how many ranks each holds. For the ranks of one local
// rank, the cross rank counts the machines before that have such a local rank too.
void number_ranks(std::vector<HostAssignment>& assignments, int size) {
  const std::vector<Neighbours> nodes = by_node(assignments);
  std::vector<int> cross_sizes;
  for (const Neighbours& node : nodes) {
    cross_sizes.resize(std::max(cross_sizes.size(), node.size()));
    for (std::size_t local = 0; local < node.size(); ++local) ++cross_sizes[local];
  }
  std::vector<int> cross_ranks(cross_sizes.size());
  int rank = 0;
  for (const Neighbours& node : nodes) {
    for (std::size_t local = 0; local < node.size(); ++local) {
      Placement& placement = *node[local];
      placement.rank = rank++;
      placement.size = size;
      placement.local_rank = static_cast<int>(local);
      placement.local_size = static_cast<int>(node.size());
      placement.cross_rank = cross_ranks[local]++;
      placement.cross_size = cross_sizes[local];
    }
  }
}

}  // namespace

std::vector<HostSpec> share_ranks(const std::vector<std::string>& names, int num_proc) {
  const int each = num_proc / static_cast<int>(names.size());
  int more = num_proc % static_cast<int>(names.size());
  std::vector<HostSpec> hosts;
  hosts.reserve(names.size());
  for (const std::string& name : names)
    hosts.push_back({.name = name, .user = {}, .port = 0, .slots = each + (more-- > 0)});
  return hosts;
}

Result<std::vector<HostAssignment>> allocate(const std::vector<HostSpec>& hosts, int num_proc) {
  if (num_proc < 1) {
    return Status::invalid_argument("the number of processes must be at least 1, not " + std::to_string(num_proc));
  }
  return get_host_assignments(hosts, num_proc, num_proc);
}

Result<std::vector<HostAssignment>> get_host_assignments(const std::vector<HostSpec>& hosts, int min_num_proc,
                                                         std::optional<int> max_num_proc) {
  if (max_num_proc && *max_num_proc < min_num_proc) {
    return Status::invalid_argument("at most " + std::to_string(*max_num_proc) + " processes is less than at least " +
                                    std::to_string(min_num_proc));
  }
  std::int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += std::max(host.slots, 0);
  if (slots < min_num_proc) return too_few_slots(hosts, min_num_proc, slots);
  const std::int64_t size = max_num_proc ? std::min<std::int64_t>(slots, *max_num_proc) : slots;
  if (size > kMaxRanks) {
    return Status::invalid_argument(count_text(size, "rank") + " are more than the limit of " +
                                    std::to_string(kMaxRanks));
  }
  std::vector<HostAssignment> assignments;
  std::int64_t left = size;
  for (const HostSpec& host : hosts) {
    const std::int64_t here = std::min<std::int64_t>(std::max(host.slots, 0), left);
    if (here == 0) continue;
    assignments.push_back({host, std::vector<Placement>(static_cast<std::size_t>(here))});
    left -= here;
  }
  number_ranks(assignments, static_cast<int>(size));
  return assignments;
}

}  // namespace hvd::launcher
