#include "launcher/elastic/ranking.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hvd::launcher {
namespace {

// Neighbours that are parts of one machine become one.
std::vector<HostSlots> machines_of(std::vector<HostSlots> hosts) {
  std::vector<HostSlots> machines;
  for (HostSlots& host : hosts) {
    if (machines.empty() || host.node.empty() || host.node != machines.back().node) {
      machines.push_back(std::move(host));
    } else {
      std::ranges::copy(host.slots, std::back_inserter(machines.back().slots));
    }
  }
  return machines;
}

}  // namespace

std::map<int, Placement> rank_slots(std::vector<HostSlots> hosts, int leader) {
  hosts = machines_of(std::move(hosts));
  const auto home = std::ranges::find_if(
      hosts, [leader](const HostSlots& one) { return std::ranges::find(one.slots, leader) != one.slots.end(); });
  std::rotate(hosts.begin(), home, std::next(home));
  std::vector<int> cross_sizes;
  int size = 0;
  for (const HostSlots& host : hosts) {
    cross_sizes.resize(std::max(cross_sizes.size(), host.slots.size()));
    for (std::size_t local = 0; local < host.slots.size(); ++local) ++cross_sizes[local];
    size += static_cast<int>(host.slots.size());
  }
  std::map<int, Placement> ranks;
  std::vector<int> cross_ranks(cross_sizes.size());
  int rank = 0;
  for (const HostSlots& host : hosts) {
    for (std::size_t local = 0; local < host.slots.size(); ++local) {
      ranks[host.slots[local]] = {.rank = rank++,
                                  .size = size,
                                  .local_rank = static_cast<int>(local),
                                  .local_size = static_cast<int>(host.slots.size()),
                                  .cross_rank = cross_ranks[local]++,
                                  .cross_size = cross_sizes[local]};
    }
  }
  std::swap(ranks.at(leader).rank, ranks.at(hosts.front().slots.front()).rank);
  return ranks;
}

}  // namespace hvd::launcher
