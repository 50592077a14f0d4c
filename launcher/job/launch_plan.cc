#include "launcher/job/launch_plan.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

// A documentation address (RFC 5737): routed like any far-away host, so that it finds the default route.
constexpr const char* kAnywhere = "192.0.2.1";

void add_new(std::vector<std::string>& list, const std::string& item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

// The first address of each chosen interface.
Result<std::vector<std::string>> addresses_of(const std::vector<std::string>& nics,
                                              const std::vector<InterfaceAddress>& own) {
  std::vector<std::string> found;
  for (const std::string& nic : nics) {
    const auto match =
        std::find_if(own.begin(), own.end(), [&](const InterfaceAddress& one) { return one.interface == nic; });
    if (match == own.end()) {
      std::vector<std::string> names;
      for (const InterfaceAddress& one : own) add_new(names, one.interface);
      std::string text;
      for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
      return Status::invalid_argument("--network-interfaces: this machine has no interface '" + nic +
                                      "' with an address; it has " + (text.empty() ? "none" : text));
    }
    add_new(found, match->address);
  }
  return found;
}

std::string loopback_address(const std::vector<InterfaceAddress>& own) {
  for (const InterfaceAddress& one : own) {
    if (one.address.starts_with("127.")) return one.address;
  }
  return "127.0.0.1";
}

std::string source_for(const std::vector<std::string>& addresses, const NetworkView& network) {
  for (const std::string& address : addresses) {
    std::string source = network.source_towards(address);
    if (!source.empty()) return source;
  }
  return network.source_towards(kAnywhere);
}

}  // namespace

Result<LaunchPlan> plan_launch(const std::vector<std::vector<std::string>>& resolved,
                               const std::vector<std::string>& nics, const NetworkView& network) {
  HVD_ASSIGN_OR_RETURN(const std::vector<std::string> chosen, addresses_of(nics, network.own));
  LaunchPlan plan;
  plan.listen_addresses = chosen;
  for (const std::vector<std::string>& addresses : resolved) {
    PlannedAgent agent;
    agent.local = std::any_of(addresses.begin(), addresses.end(),
                              [&](const std::string& address) { return is_own_address(network.own, address); });
    if (!agent.local) {
      const std::string source = source_for(addresses, network);
      const bool allowed = chosen.empty() || std::find(chosen.begin(), chosen.end(), source) != chosen.end();
      if (allowed) {
        add_new(agent.rendezvous_addresses, source);
        add_new(plan.listen_addresses, source);
      }
    }
    plan.agents.push_back(std::move(agent));
  }
  if (plan.listen_addresses.empty()) plan.listen_addresses = {loopback_address(network.own)};
  // What each host cannot use by its route, it may still try.
  for (PlannedAgent& agent : plan.agents) {
    for (const std::string& address : plan.listen_addresses) add_new(agent.rendezvous_addresses, address);
  }
  return plan;
}

}  // namespace hvd::launcher
