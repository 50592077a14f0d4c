#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hvd::launcher {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric
  bool is_ipv4 = true;
};

// What is known of the address of a host.
struct ResolvedHost {
  std::vector<std::string> addresses;  // numeric; none: only ssh may know the way
  bool by_ssh = false;  // from the ssh client's configuration: a way to it for ssh, which may well be a forwarded port
};

// The addresses of this machine's interfaces that are up, IPv4 first, without link-local IPv6.
std::vector<InterfaceAddress> interface_addresses();
// Whether a numeric address is this machine's: of an interface, or anything in 127.0.0.0/8.
bool is_own_address(const std::vector<InterfaceAddress>& own, std::string_view address);
bool is_loopback(std::string_view address);
// The address that packets from here to `address` would carry; empty when there is no route. Sends nothing.
std::string source_address_towards(const std::string& address);

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
// addresses of each host. With `nics` only addresses of these interfaces are used; one that this machine does not have
// is an error. Pure.
Result<NetworkPlan> plan_network(const std::vector<ResolvedHost>& resolved, const std::vector<std::string>& nics,
                                 const NetworkView& network);

}  // namespace hvd::launcher
