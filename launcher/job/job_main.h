#pragma once

#include <vector>

#include "launcher/cli/launch_config.h"
#include "launcher/hosts/host_spec.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// Runs the job that the command line asked for and returns the exit code of the program.
int job_main(LaunchConfig config, std::vector<HostAssignment> hosts, const config::EnvReader& env);

}  // namespace hvd::launcher
