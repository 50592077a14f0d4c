#pragma once

#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// The environment of one rank, as "NAME=value": the agent's own (what its host's sshd or the launcher gave it), then what
// the launcher exported, then what docs/design/001-job-bootstrap.md has for each rank. Later ones win. Pure.
std::vector<std::string> rank_environment(const config::EnvReader& agent_env, const LaunchMessage& launch,
                                          const RankSlot& slot, const std::string& agent_socket,
                                          const std::string& rendezvous_address);

}  // namespace hvd::launcher
