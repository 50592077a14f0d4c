#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// How many of the host's cores each of the agent's ranks may use for OpenMP; nothing for a single rank, or when the user
// has set OMP_NUM_THREADS here or where the launcher runs: each rank would start as many threads as there are cores. Pure.
std::optional<int> threads_per_rank(const config::EnvReader& agent_env, const LaunchMessage& launch, int cores);

// The environment of one rank, as "NAME=value": the agent's own (what its host's sshd or the launcher gave it), then what
// the launcher exported, then what docs/design/001-job-bootstrap.md has for each rank. Later ones win. `threads` becomes
// OMP_NUM_THREADS; PYTHONFAULTHANDLER is set unless it is there. Pure.
std::vector<std::string> rank_environment(const config::EnvReader& agent_env, const LaunchMessage& launch,
                                          const RankSlot& slot, const std::string& agent_socket,
                                          const std::string& rendezvous_address, std::optional<int> threads);

}  // namespace hvd::launcher
