#pragma once

#include <string>
#include <vector>

#include "launcher/environment/environment.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/plan/launch_config.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// A job before anything of it runs: what --dry-run prints is what the JobDriver starts. A value, made once.
struct JobPlan {
  LaunchConfig config;
  std::vector<HostAssignment> hosts;  // those that get ranks
  JobEnvironment environment;
  std::string cwd;        // where ranks start, on hosts that have it
  std::string self_path;  // of this program
};

// Places the ranks and looks at what is around us: our environment, directory and program. Too few slots are an error.
Result<JobPlan> make_job_plan(LaunchConfig config, const config::EnvReader& env);

// `horovodrun -np 2 train.py`: a command that is a Python file of this host, but nothing that could be executed, gets
// Python in front of it, and a notice that says so. Python is `python` in `program_directory` (that of horovodrun
// inside a virtual environment), else the first `python` or `python3` of PATH. Looks at files; changes nothing else.
void use_python_for_script(LaunchConfig& config, const config::EnvReader& env, const std::string& program_directory);

}  // namespace hvd::launcher
