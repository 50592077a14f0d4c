#include "launcher/network/network_plan.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

// A documentation address (RFC 5737): routed like any far-away host, so that it finds the default route.
constexpr const char* kAnywhere = "192.0.2.1";

void add_new(std::vector<std::string>& list, const std::string& item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

std::string listed(const std::vector<std::string>& names, const char* between) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : between) + name;
  return text;
}

// The first address of each chosen interface that this machine has: some may be names on other hosts.
Result<std::vector<std::string>> addresses_of(const std::vector<std::string>& nics,
                                              const std::vector<InterfaceAddress>& own) {
  std::vector<std::string> found;
  for (const std::string& nic : nics) {
    const auto match =
        std::find_if(own.begin(), own.end(), [&](const InterfaceAddress& one) { return one.interface == nic; });
    if (match != own.end()) add_new(found, match->address);
  }
  if (!found.empty() || nics.empty()) return found;
  std::vector<std::string> names;
  for (const InterfaceAddress& one : own) add_new(names, one.interface);
  return Status::invalid_argument("--network-interfaces: this machine has no interface '" + listed(nics, "' or '") +
                                  "' with an address; it has " + (names.empty() ? "none" : listed(names, ", ")));
}

std::string loopback_address(const std::vector<InterfaceAddress>& own) {
  for (const InterfaceAddress& one : own) {
    if (one.is_ipv4 && is_loopback(one.address)) return one.address;
  }
  return "127.0.0.1";
}

// Our addresses on the way to a remote host, best first.
std::vector<std::string> sources_for(const ResolvedHost& host, const NetworkView& network) {
  std::vector<std::string> sources;
  for (const std::string& address : host.addresses) {
    add_new(sources, network.source_towards(address));
    if (!sources.empty()) break;
  }
  // A host that ssh reaches through a port of this machine does not reach our loopback.
  if (sources.empty() || is_loopback(sources.front())) add_new(sources, network.source_towards(kAnywhere));
  return sources;
}

bool is_local(const ResolvedHost& host, const NetworkView& network) {
  return !host.by_ssh && std::any_of(host.addresses.begin(), host.addresses.end(),
                                     [&](const std::string& address) { return is_own_address(network.own, address); });
}

}  // namespace

bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

Result<NetworkPlan> plan_network(const std::vector<ResolvedHost>& resolved, const std::vector<std::string>& nics,
                                 const NetworkView& network) {
  HVD_ASSIGN_OR_RETURN(const std::vector<std::string> chosen, addresses_of(nics, network.own));
  NetworkPlan plan;
  plan.listen_addresses = chosen;
  for (const ResolvedHost& host : resolved) {
    PlannedAgent agent;
    agent.local = is_local(host, network);
    if (!agent.local) {
      for (const std::string& source : sources_for(host, network)) {
        const bool allowed = chosen.empty() || std::find(chosen.begin(), chosen.end(), source) != chosen.end();
        if (!allowed) continue;
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
