#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/job/host_network.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// What the network looks like from here.
struct NetworkView {
  std::vector<InterfaceAddress> own;
  std::function<std::string(const std::string&)> source_towards;  // see source_address_towards
};

struct PlannedAgent {
  bool local = false;                             // started directly, without ssh
  std::vector<std::string> rendezvous_addresses;  // for its ranks, best first
};

struct NetworkPlan {
  std::vector<PlannedAgent> agents;           // in the order of the hosts
  std::vector<std::string> listen_addresses;  // of the rendezvous server: what the job needs and nothing else
};

// Decides which hosts are this machine and on which of our addresses the ranks of each meet. `resolved` has the
// addresses of each host. With `nics` only addresses of these interfaces are used; one that this machine does not have is
// an error. Pure.
Result<NetworkPlan> plan_network(const std::vector<ResolvedHost>& resolved,
                               const std::vector<std::string>& nics, const NetworkView& network);

}  // namespace hvd::launcher
