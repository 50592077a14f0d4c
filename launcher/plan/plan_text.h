#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_plan.h"

// A plan for people. Values of sensitive names are masked; command lines and values can be pasted into a shell. Pure.
namespace hvd::launcher {

// For a POSIX shell: the text in single quotes where it needs them.
std::string shell_quote(std::string_view text);

// What a launch would do, for --dry-run: notices, the command, the variables that the job sets, and per host its ranks.
// What is chosen only at start (rendezvous address, port, agent socket) says so.
std::string dry_run_text(const JobPlan& plan);
// What a launch does, for --verbose: the same without notices, and what ranks inherit from the launcher's own
// environment.
std::string launch_text(const JobPlan& plan);
// And of one host, what was chosen since: how its agent is started, and where its ranks meet the others.
std::string start_text(const HostAssignment& host, const std::vector<std::string>& agent_argv,
                       const std::vector<std::string>& rendezvous_addresses, std::uint16_t rendezvous_port);

}  // namespace hvd::launcher
