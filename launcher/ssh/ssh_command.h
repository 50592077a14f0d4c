#pragma once

#include <string>
#include <vector>

#include "launcher/plan/launch_config.h"
#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// The argument list that starts `remote_command` on the host, for execvp: no shell of ours sees it. It never asks
// anything (BatchMode), forwards nothing, notices a dead network in 15 s, and the host can't be taken for an option. Pure.
std::vector<std::string> ssh_argv(const LaunchConfig& config, const HostSpec& host, const std::string& remote_command);

// What ssh runs there: `exec <agent> --agent <cookie>`. The cookie is not secret; everything that is travels on stdin.
std::string remote_agent_command(const std::string& agent_path, const std::string& cookie);

}  // namespace hvd::launcher
