#pragma once

#include <map>
#include <string>
#include <string_view>

#include "launcher/cli/launch_config.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// Whether a variable of the launcher's own environment travels to the ranks. It does not when its name begins with
// BASH_FUNC_, OLDPWD or _HOROVOD_SECRET_KEY, contains CUDA_VISIBLE_DEVICES (a remote host has GPUs of its own; local
// ranks inherit it from their agent), or is one that the job itself sets for each rank (HOROVOD_RANK, HOROVOD_AGENT, ...).
bool is_exportable(std::string_view name);

// What an agent adds to its own environment for every rank: the exportable variables of `env`, the variables that flags
// and the configuration file set (they win), and PYTHONUNBUFFERED=1. Not the per-rank and rendezvous variables.
std::map<std::string, std::string> exported_environment(const config::EnvReader& env, const LaunchConfig& config);

}  // namespace hvd::launcher
