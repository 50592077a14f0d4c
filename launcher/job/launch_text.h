#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// What --verbose prints of one host's launch: its ranks, how its agent is started, the command, and the environment that
// travels, with sensitive values masked. Pure.
std::string launch_text(const HostAssignment& host, const std::vector<std::string>& command,
                        const std::map<std::string, std::string>& env, const std::vector<std::string>& agent_argv,
                        const std::vector<std::string>& rendezvous_addresses, std::uint16_t rendezvous_port);

}  // namespace hvd::launcher
