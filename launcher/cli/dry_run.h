#pragma once

#include <string>
#include <vector>

#include "launcher/cli/launch_config.h"
#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {

// What a launch would do, for --dry-run: notices, the command, the variables that the job sets, and per host its ranks.
// Values of sensitive names are masked; what is chosen only at start (rendezvous address, port, agent socket) says so. Pure.
std::string dry_run_text(const LaunchConfig& config, const std::vector<HostAssignment>& assignments);

}  // namespace hvd::launcher
