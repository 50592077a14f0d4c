#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

// Parts of one machine (HostSpec::node) follow the first of them; else the order stays. For whatever has a name and a
// node, as a HostSpec. Pure.
template <typename Host>
void put_nodes_together(std::vector<Host>& hosts) {
  const auto node_of = [](const Host& host) { return host.node.empty() ? host.name : host.node; };
  std::map<std::string, std::size_t> order;  // of nodes, by their first host
  for (const Host& host : hosts) order.try_emplace(node_of(host), order.size());
  std::ranges::stable_sort(hosts,
                           [&](const Host& a, const Host& b) { return order.at(node_of(a)) < order.at(node_of(b)); });
}

}  // namespace hvd::launcher
