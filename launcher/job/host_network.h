#pragma once

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
// The address that packets from here to `address` would carry; empty when there is no route. Sends nothing.
std::string source_address_towards(const std::string& address);

}  // namespace hvd::launcher
