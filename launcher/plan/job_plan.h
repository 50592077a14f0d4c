#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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
  std::vector<HostAssignment> hosts;  // those that get ranks; of an elastic job at the start, as far as they are known
  JobEnvironment environment;
  std::vector<std::string> login_environment;                   // "NAME=value": of our own, what a login has
  std::optional<std::vector<std::string>> starter_environment;  // of what starts the other hosts' agents; else our own
  std::string cwd;        // where ranks start; if not --wdir, on hosts that have it
  std::string self_path;  // of this program
  std::map<std::string, std::vector<SlotBinding>> bindings =
      {};  // by host, of those that can be known before the start

  // What starts the agent of another host, and with --container of each: the container's words, then its horovodrun.
  std::vector<std::string> agent_words() const;
};

// Places the ranks and looks at what is around us: our environment, directory and program. Too few slots are an error.
Result<JobPlan> make_job_plan(LaunchConfig config, const config::EnvReader& env);

// The first program of that name in PATH; "" without one.
std::string found_in_path(const std::string& name, const config::EnvReader& env);

// The directory of this program.
std::string program_directory();
// Where scripts run that name no interpreter: `python` in that directory (that of horovodrun inside a virtual
// environment), else the first `python` or `python3` of PATH; "" without one.
std::string python_beside(const std::string& program_directory, const config::EnvReader& env);
// As `python -m horovod`, and what follows is asked of it; but nothing that lies in the current directory is imported.
std::vector<std::string> report_command(std::string python);

// `horovodrun -np 2 train.py`: a command that is a Python file of this host, but nothing that could be executed, gets
// Python in front of it, in a container its `python3`, and a notice that says so. Looks at files; changes nothing else.
void use_python_for_script(LaunchConfig& config, const config::EnvReader& env, const std::string& program_directory);

// A plan for people. Values of sensitive names are masked; command lines and values can be pasted into a shell. Pure.

// For a POSIX shell: the text in single quotes where it needs them.
std::string shell_quote(std::string_view text);

// What a launch would do, for --dry-run: notices, the command, the variables that the job sets, and per host its ranks.
// What is chosen only at start (rendezvous address, port, agent socket) says so.
std::string dry_run_text(const JobPlan& plan);
// What a launch does, for --verbose: the same without notices, and what ranks inherit from the launcher's own
// environment.
std::string launch_text(const JobPlan& plan);
// And of one host, what was chosen since: how its agent is started, from which host ("": this one), and where its ranks
// meet the others.
std::string start_text(const HostAssignment& host, const std::vector<std::string>& agent_argv,
                       const std::string& starter, const std::vector<std::string>& rendezvous_addresses,
                       std::uint16_t rendezvous_port);

}  // namespace hvd::launcher
